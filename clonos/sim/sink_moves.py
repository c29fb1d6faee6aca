"""A user stops the query and gives a sink another place: a new one, or that of another sink of the query.

What the old place shows stays as it is. So that output can still be judged as one, it happens where the old place shows
exactly what has been recorded as committed; a query with more in it would show that again in the new place.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from clonos.protocol.fence import GENERATION_BITS, Fence
from clonos.protocol.ids import NodeId, channel_origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.roles.commit_records import shown_commit
from clonos.sim.commits import Commits
from clonos.sim.sinks import KINDS, AheadFile, IdempotentCall, SinkCommits, SinkPlace

if TYPE_CHECKING:
    from clonos.sim.world import World

HIGHEST = Fence.of((1 << GENERATION_BITS) - 1)


def movable(world: World) -> list[NodeId]:
    """Sinks of which nothing is visible beyond the newest record."""
    newest = Commits(world).newest
    if newest is None:
        return []
    kept = {place.origin.node for place in world.sinks.values() if not _is_settled(place, newest)}
    return sorted({origin.node for origin in world.sinks} - kept)


def _is_settled(place: SinkPlace, newest: CommitRecord) -> bool:
    if isinstance(place, IdempotentCall) or (isinstance(place, AheadFile) and place.promised):
        return False
    ends = {channel: newest.ends.get(channel_origin(channel)) for channel in place.cursors}
    return all(end is not None and place.cursors[channel] <= end.emitted for channel, end in ends.items())


def move(world: World, node: NodeId, rng: Random) -> None:
    """What is still under way to the old place changes nothing there."""
    others = [commits for other, commits in world.sink_commits.items() if not _has_been(other, node, world)]
    to_other = bool(others) and rng.random() < 0.5
    world.sink_commits[node] = rng.choice(others) if to_other else SinkCommits()
    kind = world.plan.sink_kinds[node]
    for origin in [origin for origin in world.sinks if origin.node == node]:
        old = world.sinks[origin]
        old.holder, old.floor = old.holder.raised_to(HIGHEST), HIGHEST
        world.sinks[origin] = KINDS[kind](world, origin, version=old.version + 1)


def _has_been(place_of: NodeId, node: NodeId, world: World) -> bool:
    """A sink that comes back to an earlier place may be refused: rows that have been committed since are not there."""
    record = shown_commit(place_of, world.sink_stores[place_of])
    return record is None or record.is_of(node)
