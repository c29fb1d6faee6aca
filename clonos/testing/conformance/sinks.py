"""What every sink promises, as checks to run against an implementation of `clonos.sinks.port.Sink`.

    @pytest.mark.parametrize("check", SINK_CHECKS, ids=check_name)
    def test_my_sink(check, tmp_path):
        check(SinkPlace(make=lambda: MySink(tmp_path), visible=lambda: read_back(tmp_path)))

A check is a function of a `SinkPlace`, which must be new for each check. It raises AssertionError, with a text, where
the sink breaks the promise. pytest is not needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import cloudpickle
import pyarrow as pa

from clonos.errors import Fenced, SinkError
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, InstanceId, NodeId, Origin, channel_id
from clonos.sinks.port import Cursors, Sink, SinkLogReader, SinkWriter
from clonos.testing.conformance.checks import check_name, refused, same

__all__ = [
    "COMMIT_CHECKS",
    "SCHEMA",
    "SINK_CHECKS",
    "CommitPlace",
    "KeepsCommits",
    "SinkPlace",
    "check_name",
]

SCHEMA = pa.schema([("card", pa.string()), ("n", pa.int64())])
"""The columns of the rows that the checks write: `card string, n long`."""

QUERY, NODE, OTHER_NODE, INSTANCE = "query-1", NodeId(5), NodeId(6), InstanceId(0)
CHANNEL = channel_id(3, 0)

Written = tuple[str, Any, Any]


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """A place that sinks write to, empty at first.

    `make` gives a sink over this place, a new one at each call, as each process of a query has it. `visible` reads the
    place from outside: `(id, card, n)` of each row, in any order. An id may have a prefix that ends with "/".
    """

    make: Callable[[], Sink]
    visible: Callable[[], Sequence[Written]]

    def sink(self) -> Sink:
        made = self.make()
        made.validate(SCHEMA)
        return made

    def shown(self) -> list[Written]:
        """What is visible, by output number, ids without their prefix."""
        found = [(str(row_id).rpartition("/")[2], card, n) for row_id, card, n in self.visible()]
        return sorted(found, key=lambda row: (row[0].split("-")[:2], int(row[0].split("-")[2])))

    def deltas(self, query: str = QUERY) -> list[bytes]:
        with closing(self.sink().log_reader(query)) as reader:
            return list(reader.deltas())

    def cursors(self, query: str = QUERY) -> dict[Origin, Cursors]:
        with closing(self.sink().log_reader(query)) as reader:
            return {origin: cursors for origin, cursors in reader.cursors().items() if cursors}


class KeepsCommits(Protocol):
    """The part of a sink that keeps fences and the commit record."""

    def raise_fence(self, query: str, fence: Fence) -> None: ...

    def standing_fence(self, query: str) -> Fence: ...

    def record_commit(self, query: str, fence: Fence, epoch: Epoch, record: bytes) -> None: ...

    def last_commit(self, query: str) -> tuple[Epoch, bytes] | None: ...


@dataclass(frozen=True, slots=True)
class CommitPlace:
    """A place with commit records, empty at first; `make` gives something over it, as each process has it."""

    make: Callable[[], KeepsCommits]


# ------------------------------------------------------------------ helpers


def bundle(first: int, last: int) -> dict[str, Any]:
    """Arguments of `write`: rows of output numbers `first` to `last` of node 3, with one delta."""
    numbers = range(first, last + 1)
    return {
        "rows": [(f"card{number % 7}", number) for number in numbers],
        "ids": [f"3-0-{number}" for number in numbers],
        "cursors": {CHANNEL: last},
        "deltas": [b"delta up to %d" % last],
    }


def rows(first: int, last: int) -> list[Written]:
    return [(f"3-0-{number}", f"card{number % 7}", number) for number in range(first, last + 1)]


def opened(place: SinkPlace, fence: Fence, *, node: NodeId = NODE) -> SinkWriter:
    writer = place.sink().writer()
    writer.open(query=QUERY, node=node, instance=INSTANCE, fence=fence)
    return writer


# --------------------------------------------------------- rows, log, cursor


def it_fits_the_port(place: SinkPlace) -> None:
    """All methods are there, and a sink can be pickled to where its writers run."""
    sink = place.sink()
    with closing(sink.log_reader(QUERY)) as reader:
        same("a log reader of the port", isinstance(reader, SinkLogReader), True)
    same("a sink of the port", isinstance(sink, Sink), True)
    same("a writer of the port", isinstance(sink.writer(), SinkWriter), True)
    cloudpickle.dumps(sink)


def rows_determinants_and_cursor_take_effect_together(place: SinkPlace) -> None:
    """After each bundle; a bundle may have no rows."""
    with closing(opened(place, Fence(3))) as writer:
        writer.write(**bundle(1, 3))
        same("the rows of one bundle", place.shown(), rows(1, 3))
        same("its determinants", place.deltas(), [b"delta up to 3"])
        writer.write(rows=[], ids=[], cursors={CHANNEL: 5}, deltas=[b"no rows"])
        writer.write(**bundle(6, 7))
    same("all rows", place.shown(), rows(1, 3) + rows(6, 7))
    same("all determinants", place.deltas(), [b"delta up to 3", b"no rows", b"delta up to 7"])
    same("the cursors", place.cursors(), {(NODE, INSTANCE): {CHANNEL: 7}})
    with closing(place.sink().writer()) as writer:
        position = writer.open(query=QUERY, node=NODE, instance=INSTANCE, fence=Fence(4))
    same("where the next writer begins", position.cursors, {CHANNEL: 7})


def a_bundle_that_came_before_is_refused(place: SinkPlace) -> None:
    """Delivered again, by the same writer or by the next one, whole or in part, it changes nothing."""
    with closing(opened(place, Fence(3))) as writer:
        writer.write(**bundle(1, 3))
        for first, last in ((1, 3), (2, 5)):
            with refused(SinkError, f"rows {first} to {last} behind a cursor at 3"):
                writer.write(**bundle(first, last))
    with closing(opened(place, Fence(4))) as writer, refused(SinkError, "a bundle of the writer before"):
        writer.write(**bundle(1, 3))
    same("the rows", place.shown(), rows(1, 3))
    same("the determinants", place.deltas(), [b"delta up to 3"])


def a_bundle_that_does_not_continue_is_refused(place: SinkPlace) -> None:
    """Nothing of it takes effect, and the writer may go on with one that does."""
    with closing(opened(place, Fence(3))) as writer:
        writer.write(**bundle(1, 5))
        wrong: dict[str, dict[str, Any]] = {
            "a row beyond the cursor that came with it": {"cursors": {CHANNEL: 7}},
            "a cursor that steps back": {"cursors": {CHANNEL: 4}},
            "an id that comes twice": {"ids": ["3-0-6", "3-0-6", "3-0-8"]},
            "ids that go back": {"ids": ["3-0-7", "3-0-6", "3-0-8"]},
            "more rows than ids": {"ids": ["3-0-6"]},
            "an id that names no place": {"ids": ["a", "b", "c"]},
        }
        for what, instead in wrong.items():
            with refused(SinkError, what):
                writer.write(**{**bundle(6, 8), **instead})
        same("the rows", place.shown(), rows(1, 5))
        same("the determinants", place.deltas(), [b"delta up to 5"])
        same("the cursors", place.cursors(), {(NODE, INSTANCE): {CHANNEL: 5}})
        writer.write(**bundle(6, 8))
    same("the rows", place.shown(), rows(1, 8))


def an_empty_place_has_nothing_to_read(place: SinkPlace) -> None:
    """Whatever reads there before the first writer finds nothing, and is no error."""
    same("the determinants", place.deltas(), [])
    same("the cursors", place.cursors(), {})
    same("how many deltas are dropped", place.sink().truncate(QUERY, Fence(9), lambda _: False), 0)


def queries_are_kept_apart(place: SinkPlace) -> None:
    """In one place each has its own fences, log and cursors."""
    with closing(opened(place, Fence(3))) as writer:
        writer.write(**bundle(1, 2))
        place.sink().raise_fence("query-2", Fence(9))
        writer.write(**bundle(3, 4))
    same("the determinants of another query", place.deltas("query-2"), [])
    same("the cursors of another query", place.cursors("query-2"), {})
    same("the determinants", place.deltas(), [b"delta up to 2", b"delta up to 4"])


# ------------------------------------------------------------------- fences


def a_second_writer_under_the_same_fence_is_refused(place: SinkPlace) -> None:
    with closing(opened(place, Fence(3))) as first:
        with refused(Fenced, "a second writer under a fence that is taken"):
            opened(place, Fence(3))
        first.write(**bundle(1, 2))
        with closing(opened(place, Fence(4))) as second:
            with refused(Fenced, "a writer whose fence was overtaken"):
                first.write(**bundle(3, 4))
            same("what a fenced writer has left", place.shown(), rows(1, 2))
            same("its determinants", place.deltas(), [b"delta up to 2"])
            second.write(**bundle(3, 4))
    same("the rows", place.shown(), rows(1, 4))


def the_same_writer_may_come_again(place: SinkPlace) -> None:
    """When it was not told that it had taken the fence, or a bundle's outcome is in doubt."""
    writer = place.sink().writer()
    for _ in range(2):
        position = writer.open(query=QUERY, node=NODE, instance=INSTANCE, fence=Fence(3))
    same("the cursors at first", position.cursors, {})
    writer.write(**bundle(1, 2))
    for fence in (Fence(3), Fence(5)):
        position = writer.open(query=QUERY, node=NODE, instance=INSTANCE, fence=fence)
        same("the cursors when it comes again", position.cursors, {CHANNEL: 2})
    writer.close()


def a_fence_that_was_only_raised_has_no_owner_yet(place: SinkPlace) -> None:
    place.sink().raise_fence(QUERY, Fence(7))
    with (
        closing(opened(place, Fence(7))),
        refused(Fenced, "a second writer under a fence that was raised, and is taken"),
    ):
        opened(place, Fence(7))


def fences_are_compared_with_their_generation(place: SinkPlace) -> None:
    """The late attempt of an older start has the larger numbers in all but the first place."""
    old, new = Fence.of(3, 2**48 - 1, 2**16 - 1), Fence.of(2**63, 1, 0)
    with closing(opened(place, old)) as zombie:
        place.sink().raise_fence(QUERY, Fence.of(2**63))
        with refused(Fenced, "a writer of an older start"):
            zombie.write(**bundle(1, 2))
        with closing(opened(place, new)) as writer:
            writer.write(**bundle(1, 2))
        with refused(Fenced, "the opening of a writer of an older start"):
            opened(place, old)
    same("the rows", place.shown(), rows(1, 2))


def each_sink_node_has_its_own_fence(place: SinkPlace) -> None:
    """A writer of another node may hold a lower one, as long as it is not below what was raised."""
    with closing(opened(place, Fence(4))) as first, closing(opened(place, Fence(1), node=OTHER_NODE)):
        first.write(**bundle(1, 2))
    same("the cursors", place.cursors(), {(NODE, INSTANCE): {CHANNEL: 2}})


def a_raised_fence_refuses_writers_that_never_were(place: SinkPlace) -> None:
    with closing(opened(place, Fence(1))) as old:
        for fence in (Fence(7), Fence(6)):
            place.sink().raise_fence(QUERY, fence)
        with refused(Fenced, "a writer below the fence that was raised"):
            old.write(**bundle(1, 5))
        with refused(Fenced, "a first writer below the fence that was raised"):
            opened(place, Fence(6), node=OTHER_NODE)
    opened(place, Fence(7), node=OTHER_NODE).close()
    same("the rows", place.shown(), [])
    same("the determinants", place.deltas(), [])


# --------------------------------------------------------------- truncation


def truncation_drops_what_is_not_wanted_and_nothing_else(place: SinkPlace) -> None:
    """It may drop fewer deltas than it could. Rows and cursors stay."""
    for attempt in (1, 2, 3):
        with closing(opened(place, Fence.of(1, attempt))) as writer:
            writer.write(**bundle(attempt, attempt))
    place.sink().truncate(QUERY, Fence.of(1), lambda delta: delta != b"delta up to 1")
    left = place.deltas()
    same("the deltas to be kept", left[-2:], [b"delta up to 2", b"delta up to 3"])
    same("the rows", place.shown(), rows(1, 3))
    same("the cursors", place.cursors(), {(NODE, INSTANCE): {CHANNEL: 3}})


def a_deposed_driver_drops_nothing(place: SinkPlace) -> None:
    for attempt in (1, 2):
        with closing(opened(place, Fence.of(1, attempt))) as writer:
            writer.write(**bundle(attempt, attempt))
    place.sink().raise_fence(QUERY, Fence.of(2))
    with refused(Fenced, "truncation by a driver whose query a later start has taken over"):
        place.sink().truncate(QUERY, Fence.of(1), lambda _: False)
    same("the determinants", place.deltas(), [b"delta up to 1", b"delta up to 2"])
    place.sink().truncate(QUERY, Fence.of(2), lambda _: False)


def a_driver_that_is_deposed_in_the_middle_stops(place: SinkPlace) -> None:
    """It has decided and begun; what it has not dropped by then stays."""
    for attempt in range(1, 4):
        with closing(opened(place, Fence.of(1, attempt))) as writer:
            writer.write(**{**bundle(attempt, attempt), "deltas": [b"%d" % n for n in range(600)]})
    seen: list[bytes] = []

    def keep(delta: bytes) -> bool:
        seen.append(delta)
        if len(seen) == 600:
            place.sink().raise_fence(QUERY, Fence.of(2))
        return False

    sink = place.sink()
    try:
        sink.truncate(QUERY, Fence.of(1), keep)
    except Fenced:
        pass
    else:  # a sink that looks at fewer of them drops fewer
        same("how much is looked at by a driver that was deposed in the middle", len(seen) < 600, True)
    same("that at least two thirds are left", len(place.deltas()) >= 600, True)


# ------------------------------------------------------------ commit record


def record(sink: KeepsCommits, fence: int, number: int, content: bytes) -> None:
    sink.record_commit(QUERY, Fence(fence), Epoch(number), content)


def a_commit_record_is_there_for_every_process(place: CommitPlace) -> None:
    same("the record at first", place.make().last_commit(QUERY), None)
    for epoch, content in ((0, b"\0\xffzero"), (1, b"")):
        record(place.make(), 3, epoch, content)
        same("the record", place.make().last_commit(QUERY), (epoch, content))
    same("the record of another query", place.make().last_commit("another"), None)


def every_raised_fence_is_remembered(place: CommitPlace) -> None:
    """The driver's checkpoint may be an older copy, which has not heard of all starts."""
    same("the fence at first", place.make().standing_fence(QUERY), LOWEST_FENCE)
    for generation in (7, 5):
        place.make().raise_fence(QUERY, Fence.of(generation))
    same("the highest fence", place.make().standing_fence(QUERY), Fence.of(7))
    same("the fence of another query", place.make().standing_fence("another"), 0)


def a_commit_record_never_goes_back_under_one_fence(place: CommitPlace) -> None:
    sink = place.make()
    record(sink, 3, 5, b"five")
    record(sink, 3, 4, b"late")
    same("the record after a late one", sink.last_commit(QUERY), (5, b"five"))
    record(sink, 4, 2, b"of an older checkpoint")
    same("the record of a newer start", sink.last_commit(QUERY), (2, b"of an older checkpoint"))


def a_deposed_driver_does_not_record(place: CommitPlace) -> None:
    sink = place.make()
    record(sink, 3, 5, b"five")
    sink.raise_fence(QUERY, Fence(7))
    with refused(Fenced, "a record under a fence below the raised one"):
        record(sink, 6, 6, b"six")
    record(sink, 7, 6, b"of the newer")
    same("the record", sink.last_commit(QUERY), (6, b"of the newer"))
    record(sink, 8, 7, b"of one whose fence was not raised")
    with refused(Fenced, "a record under a fence below that of the record"):
        record(sink, 7, 8, b"late")
    same("the record", sink.last_commit(QUERY), (7, b"of one whose fence was not raised"))


def of_two_drivers_that_record_at_once_the_later_epoch_stands(place: CommitPlace) -> None:
    """The record is read and replaced in one step."""

    def write(first: int) -> None:
        sink = place.make()
        for epoch in range(first, 12, 2):
            record(sink, 1, epoch, b"%d" % epoch)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    same("the record", place.make().last_commit(QUERY), (11, b"11"))


SINK_CHECKS: tuple[Callable[[SinkPlace], None], ...] = (
    it_fits_the_port,
    rows_determinants_and_cursor_take_effect_together,
    a_bundle_that_came_before_is_refused,
    a_bundle_that_does_not_continue_is_refused,
    an_empty_place_has_nothing_to_read,
    queries_are_kept_apart,
    a_second_writer_under_the_same_fence_is_refused,
    the_same_writer_may_come_again,
    a_fence_that_was_only_raised_has_no_owner_yet,
    fences_are_compared_with_their_generation,
    each_sink_node_has_its_own_fence,
    a_raised_fence_refuses_writers_that_never_were,
    truncation_drops_what_is_not_wanted_and_nothing_else,
    a_deposed_driver_drops_nothing,
    a_driver_that_is_deposed_in_the_middle_stops,
)
"""What a sink promises of rows, log, cursors, fences and truncation."""

COMMIT_CHECKS: tuple[Callable[[CommitPlace], None], ...] = (
    a_commit_record_is_there_for_every_process,
    every_raised_fence_is_remembered,
    a_commit_record_never_goes_back_under_one_fence,
    a_deposed_driver_does_not_record,
    of_two_drivers_that_record_at_once_the_later_epoch_stands,
)
"""What a sink promises of the commit record that it keeps."""
