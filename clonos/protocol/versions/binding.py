"""What a checkpoint is bound to: which differences between two programs may be taken over its state, and when.

A change takes effect *at once* where nothing that was recorded or kept depends on it, *from an epoch on* where what was
recorded before it must be repeated under the old program, and is *refused* where what is kept would change its meaning.
A refusal says what to do.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from clonos.protocol.ids import NodeId
from clonos.protocol.topology import Columns, Node, NodeKind, StateVariable, Topology, Watermark
from clonos.protocol.versions.state_evolution import How, evolution

NEW_CHECKPOINT = "restore the old value, or use a new checkpointLocation"
NO_TIMEOUT = ("NoTimeout", "None")


class When(enum.Enum):
    """When a change takes effect."""

    AT_ONCE = "at once"
    EPOCH = "from an epoch on"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: where it is, what it is, and when it takes effect; of a refused one what to do. `node` is that of
    a function that brings it along, so that the function before it goes without."""

    where: str
    what: str
    says: str
    when: When
    todo: str = ""
    node: NodeId | None = None

    def __str__(self) -> str:
        return f"{self.what} of {self.where} {self.says}"


Unused = Mapping[int, Mapping[str, StateVariable]]
"""By node, state variables that earlier programs declared and the last one does not: what they have kept is there."""


def compare(bound: Topology, program: Topology, unused: Unused | None = None) -> list[Change]:
    """What a program changes of what a checkpoint is bound to."""
    changes = list(_query_changes(bound, program))
    if len(bound.nodes) != len(program.nodes):
        # Numbers say nothing then: those behind one that is gone have moved up.
        return [*changes, *_nodes_come_and_gone(bound, program)]
    for before, after in zip(_in_order(bound), _in_order(program), strict=True):
        fixed = list(_fixed_changes(before, after))
        # What another node is bound to says nothing about this one.
        changes += fixed or _node_changes(before, after, (unused or {}).get(after.number, {}))
    return changes


def _in_order(program: Topology) -> list[Node]:
    return sorted(program.nodes, key=lambda node: node.number)


def _nodes_come_and_gone(bound: Topology, program: Topology) -> Iterator[Change]:
    old, new = (Counter((node.kind, node.name) for node in _in_order(each)) for each in (bound, program))
    for nodes, state in ((old - new, "gone"), (new - old, "new")):
        for kind, name in nodes.elements():
            says = f"changes: {kind.value} {name!r} is {state}"
            yield Change("the query", "the set of nodes", says, When.REFUSED, NEW_CHECKPOINT)


def _query_changes(bound: Topology, program: Topology) -> Iterator[Change]:
    if bound.zone is not None and program.zone is not None and bound.zone != program.zone:
        yield Change(
            "the query",
            "the session time zone",
            f"was {bound.zone!r} and is {program.zone!r} now",
            When.REFUSED,
            "keys and times of the kept state are meant in the old one: set it before the query is defined, "
            f'spark.conf.set("spark.sql.session.timeZone", "{bound.zone}")',
        )
    for name, before, after in _differing(bound.settings, program.settings):
        yield Change("the session", name, f"was {before!r} and is {after!r} now", When.EPOCH)
    if bound.realtime is not None and bound.realtime != program.realtime:
        mode = "real time" if program.realtime else "micro-batch"
        yield Change("the query", "the mode", f"is {mode} now", When.AT_ONCE)


def _differing(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> Iterator[tuple[str, str, str]]:
    if before is None or after is None:
        return
    for name in sorted(before.keys() | after.keys()):
        if before.get(name, "") != after.get(name, ""):
            yield name, before.get(name, ""), after.get(name, "")


def place_of(node: Node) -> str:
    """As changes say where they are."""
    return f"node {node.number} ({node.name!r})"


def _second_input(node: Node) -> tuple[object, ...]:
    """But for its watermark, which may change in part."""
    return () if node.right is None else (node.right.upstream, node.right.key, node.right.key_types)


def _fixed_changes(before: Node, after: Node) -> Iterator[Change]:
    """Of what can never change."""
    pairs = [
        ("kind", before.kind.value, after.kind.value, NEW_CHECKPOINT),
        ("name", before.name, after.name, "a name binds state to its operator: " + NEW_CHECKPOINT),
        (
            "parallelism",
            before.parallelism,
            after.parallelism,
            f"give parallelism={before.parallelism}, or use a new checkpointLocation",
        ),
        ("upstream", before.upstream, after.upstream, NEW_CHECKPOINT),
        ("side outputs read", dict(before.reads), dict(after.reads), NEW_CHECKPOINT),
        ("second input", _second_input(before), _second_input(after), NEW_CHECKPOINT),
        ("key", before.key, after.key, "state is kept under it: " + NEW_CHECKPOINT),
        ("types of the key", before.key_types, after.key_types, "state is kept under it: " + NEW_CHECKPOINT),
        (
            "form",
            before.form,
            after.form,
            f"its state was kept by {before.form}: use that, or a new checkpointLocation",
        ),
    ]
    for what, old, new, todo in pairs:
        if old is not None and new is not None and old != new:
            shown = (
                (list(old), list(new)) if isinstance(old, tuple) and isinstance(new, tuple) else (old, new)
            )
            yield Change(
                place_of(after), what, f"was {shown[0]!r} and is {shown[1]!r} now", When.REFUSED, todo
            )


def _node_changes(before: Node, after: Node, unused: Mapping[str, StateVariable]) -> list[Change]:
    changes = []
    if before.version != after.version:
        says = f"was {before.version!r} and is {after.version!r} now"
        changes.append(Change(place_of(after), "version", says, When.EPOCH, node=after.number))
    if after.kind is NodeKind.SOURCE:
        changes += _source_changes(before, after)
    changes += _output_changes(before, after)
    changes += _side_output_changes(before, after)
    changes += _derived_changes(before, after)
    changes += _time_changes(before, after)
    if before.state is not None and after.state is not None:
        changes += [replace(change, node=after.number) for change in _state_changes(before, after, unused)]
    return changes


# ------------------------------------------------------------------------- columns


def _output_changes(before: Node, after: Node) -> Iterator[Change]:
    what = "the columns" if after.kind is NodeKind.SINK else "the output"
    if before.columns is not None and after.columns is not None:
        yield from _column_changes(after, what, before.columns, after.columns)
    elif before.output != after.output:
        # Text of format version 1: the fields in their order, without what may be null.
        if before.output.endswith(">") and after.output.startswith(before.output[:-1] + ","):
            yield Change(
                place_of(after),
                what,
                f"has more columns: {after.output[len(before.output) : -1]}",
                When.EPOCH,
            )
        else:
            says = f"was {before.output!r} and is {after.output!r} now"
            yield Change(place_of(after), what, says, When.REFUSED, _COLUMNS)


def _side_output_changes(before: Node, after: Node) -> Iterator[Change]:
    """One that is gone is lacking where an older function, which gave it rows, has to be repeated."""
    for name in sorted(before.side_outputs.keys() - after.side_outputs.keys()):
        yield Change(place_of(after), f"the side output {name!r}", "is not declared any more", When.EPOCH)
    for name, columns in after.side_outputs.items():
        known = before.side_outputs.get(name, columns)
        yield from _column_changes(after, f"the side output {name!r}", known, columns)


def _derived_changes(before: Node, after: Node) -> Iterator[Change]:
    """An expression belongs to no version: where it changes, no function of before repeats what it made."""
    for upstream in sorted(before.derived.keys() | after.derived.keys()):
        old, new = before.derived.get(upstream), after.derived.get(upstream)
        if old is not None and new is not None:
            yield from _column_changes(after, f"what is read of node {upstream}", old.columns, new.columns)
        if (old and old.digest) != (new and new.digest):
            shown = [f"{each.said!r}" if each else "nothing" for each in (old, new)]
            says = f"went through {shown[0]} and goes through {shown[1]} now"
            yield Change(place_of(after), f"what is read of node {upstream}", says, When.EPOCH)


def _column_changes(node: Node, what: str, before: Columns, after: Columns) -> Iterator[Change]:
    wrong = misfit(before, after)
    if wrong is not None:
        yield Change(place_of(node), what, wrong, When.REFUSED, _COLUMNS)
    elif before != after:
        yield Change(place_of(node), what, _widened(before, after), When.EPOCH)


_COLUMNS = (
    "columns may be added where they may be null; keep the others with their names, types and order, and bring a "
    "changed value in a new column"
)


def misfit(before: Columns, after: Columns) -> str | None:
    """Why columns do not continue others: all of those, in their order, of the same types, and more only where it may
    be null."""
    names = [column.name for column in after]
    there = dict(zip(names, after, strict=True))
    for old in before:
        new = there.get(old.name)
        if new is None:
            return f"lacks {old.name!r}, which it had"
        if new.type != old.type:
            return f"has {old.name!r} as {new.type}; it was {old.type}"
        if old.nullable and not new.nullable:
            return f"has {old.name!r} without null; it could be null"
    kept = [name for name in names if name in {old.name for old in before}]
    if kept != [old.name for old in before]:
        return f"has the order {', '.join(kept)}; it was {', '.join(old.name for old in before)}"
    added = [column for column in after if column.name not in {old.name for old in before}]
    for column in added:
        if not column.nullable:
            return f"has {column.name!r} in addition, which may not be null"
    return None


def _widened(before: Columns, after: Columns) -> str:
    known = {old.name for old in before}
    added = [f"{column.name} {column.type}" for column in after if column.name not in known]
    return f"has more columns: {', '.join(added)}" if added else "may be null in more columns"


# -------------------------------------------------------------------------- source

PLACES = ("path", "subscribe", "subscribePattern", "assign")


def _source_changes(before: Node, after: Node) -> Iterator[Change]:
    for name, old, new in _differing(before.source, after.source):
        says = f"was {old!r} and is {new!r} now"
        more = name == "subscribe" and set(old.split(",")) <= set(new.split(","))
        if more or (name == "path" and _is_in_full(old, new)):
            yield Change(place_of(after), name, says, When.AT_ONCE)
        elif name in PLACES:
            todo = (
                "records are known by their place in the source. If these are the same records at another place, say "
                '.option("clonos.sameSource", "true"); else use a new checkpointLocation'
            )
            yield Change(place_of(after), name, says, When.REFUSED, todo)
        elif name in ("kind", "channel", "position"):
            todo = "records are known by their place in the source: " + NEW_CHECKPOINT
            yield Change(place_of(after), name, says, When.REFUSED, todo)
        else:
            yield Change(place_of(after), name, says, When.EPOCH)


def _is_in_full(old: str, new: str) -> bool:
    """Whether each path may be the older one: versions before wrote it down as it was given, relative to whatever
    directory, without a scheme, or with dots in it."""
    given, full = old.split(";"), new.split(";")
    return len(given) == len(full) and all(map(_ends_with, full, given))


def _ends_with(new: str, old: str) -> bool:
    steps, end = _steps(new), _steps(old)
    before = steps[: len(steps) - len(end)]
    if not old or before + end != steps:
        return False
    return not old.startswith("/") or not before or (before[0].endswith(":") and len(before) <= 2)


def _steps(path: str) -> list[str]:
    """The names on the way; what begins above the directory it is relative to, without that."""
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in ("", "."):
            steps.append(step)
    return steps


# ---------------------------------------------------------------------------- time


def _time_changes(before: Node, after: Node) -> Iterator[Change]:
    old, new = before.timeout, after.timeout
    if old is not None and new is not None and old != new:
        when = When.EPOCH if old in NO_TIMEOUT else When.REFUSED
        todo = f"timers are kept that are meant as {old}: use that, or a new checkpointLocation"
        yield Change(place_of(after), "the timeout", f"was {old!r} and is {new!r} now", when, todo)
    if before.per is not None and after.per is not None and before.per != after.per:
        # Of all versions of the function, so that none brings it along: an epoch that was gathered is no epoch that was
        # processed bundle by bundle, and neither repeats the other.
        yield Change(place_of(after), "per", f"was {before.per!r} and is {after.per!r} now", When.EPOCH)
    yield from _initial_state_changes(before, after)
    yield from _watermark_changes(place_of(after), "the watermark", before.watermark, after.watermark)
    if before.right is not None and after.right is not None:
        what = "the watermark of the second input"
        yield from _watermark_changes(place_of(after), what, before.right.watermark, after.right.watermark)


def _initial_state_changes(before: Node, after: Node) -> Iterator[Change]:
    """What keys begin with is read once."""
    old, new = before.initial_state, after.initial_state
    if old == new:
        return
    if not new:
        yield Change(place_of(after), "initialState", "is not given any more", When.EPOCH)
        return
    says = (
        "is new: keys have begun without it"
        if not old
        else f"has other columns: it was read with {list(old)}"
    )
    todo = f"{'leave it out' if not old else 'give it as it was, or leave it out'}, or use a new checkpointLocation"
    yield Change(place_of(after), "initialState", says, When.REFUSED, todo)


def _watermark_changes(
    at: str, what: str, before: Watermark | None, after: Watermark | None
) -> Iterator[Change]:
    if before is None or after is None or before == after:
        return
    says = f"was {_shown(before)} and is {_shown(after)} now"
    taken = before[0] in ("", after[0])
    todo = (
        f"event time has come as far as the old one said: use {_shown(before)}, or a new checkpointLocation"
    )
    yield Change(at, what, says, When.EPOCH if taken else When.REFUSED, todo)


def _shown(watermark: Watermark) -> str:
    column, delay = watermark
    return f"{column!r} less {delay / 1_000_000:g} s" if column else "none"


# --------------------------------------------------------------------------- state


def state_said(variable: str) -> str:
    """A state variable, as changes say it; forms with one only have it without a name."""
    return f"state variable {variable!r}" if variable else "the state"


def _state_changes(before: Node, after: Node, unused: Mapping[str, StateVariable]) -> Iterator[Change]:
    old = {variable.name: variable for variable in before.state or ()}
    new = {variable.name: variable for variable in after.state or ()}
    for name in sorted(old.keys() | new.keys()):
        what = state_said(name)
        if name in unused and name in new:
            yield Change(
                place_of(after), what, "is used again, with what it kept when it was last used", When.EPOCH
            )
            # The version before has left nothing that could be migrated.
            fresh = replace(after, migrates=after.migrates - {name})
            todo = f"declare it as it was then, or give {what} another name"
            for change in _variable_changes(what, unused[name], new[name], before, fresh, rewritten=False):
                yield replace(change, todo=todo) if change.when is When.REFUSED else change
        elif name not in old or name not in new:
            yield Change(
                place_of(after), what, "is new" if name not in old else "is not used any more", When.EPOCH
            )
        else:
            yield from _variable_changes(what, old[name], new[name], before, after)


def _variable_changes(
    what: str,
    old: StateVariable,
    new: StateVariable,
    before: Node,
    after: Node,
    *,
    rewritten: bool = True,
) -> Iterator[Change]:
    """`rewritten`: what is kept can be, when a new version begins."""
    at = place_of(after)
    another = f"restore it, or give {what} another name"
    if (old.kind, old.key) != (new.kind, new.key):
        yield Change(at, what, "has another kind, or another key of its map", When.REFUSED, another)
        return
    if (old.ttl is None) != (new.ttl is None):
        says = "has a time to live now" if old.ttl is None else "has no time to live any more"
        yield Change(at, what, says, When.REFUSED, another)
        return
    if old.ttl != new.ttl:
        yield Change(at, what, "has another time to live, for what is written from then on", When.EPOCH)
    if old.columns == new.columns:
        return
    continues, another_version = evolution(old.columns, new.columns), before.version != after.version
    if new.name in after.migrates and another_version and continues.how is not How.AS_KEPT:
        yield Change(at, what, f"{continues.says}: it is migrated", When.EPOCH)
    elif continues.how is How.AS_KEPT or (continues.how is How.BY_NAME and another_version and rewritten):
        yield Change(at, what, continues.says, When.EPOCH)
    elif continues.how is How.BY_NAME:
        todo = "give the operator a new version, with which values are kept anew by the names of their fields"
        yield Change(at, what, continues.says, When.REFUSED, todo)
    else:
        todo = "give the operator a new version and migrate=, or add fields where they may be null"
        yield Change(at, what, continues.says, When.REFUSED, todo)
