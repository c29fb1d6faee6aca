"""What every causal log store promises, as checks to run against implementations of `KeepsLog`.

    @pytest.mark.parametrize("check", LOG_CHECKS, ids=check_name)
    def test_my_store(check, tmp_path):
        check(LogPlace(open=lambda: MyStore(tmp_path)))

A check raises AssertionError, with a text, where the promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from clonos.errors import LogConflict
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta import decode_delta, encode_delta, encode_entry
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.testing.conformance.checks import check_name, refused, same

__all__ = ["LOG_CHECKS", "OTHER", "OWNER", "KeepsLog", "LogPlace", "check_name"]

OWNER, OTHER = Origin.of(2, 0), Origin.of(1, 3)
"""Whose store it is, and an instance that its owner has received determinants of."""


class KeepsLog(Protocol):
    """The causal log store of the instance `OWNER`: its own log in pieces, and the deltas that it received."""

    @property
    def end(self) -> LogOffset: ...

    def append(self, deltas: Sequence[bytes], own: Segment | None) -> None: ...

    def own(self) -> Sequence[Segment]: ...

    def deltas(self) -> Sequence[bytes]: ...

    def begin(self, incarnation: Writer) -> None: ...

    def incarnations(self) -> tuple[Writer, ...] | None: ...

    def fold(self) -> None: ...

    def truncate(self, truncation_points: Mapping[Origin, LogOffset]) -> None: ...

    def rewrite_own(
        self, offset: LogOffset, pieces: Sequence[Segment], copied_by: Writer | None = None
    ) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A place for one store, empty at first; `open` opens it, as the next process does once the one before is over."""

    open: Callable[[], KeepsLog]


def at(offset: int, data: bytes) -> Segment:
    """A piece of a log."""
    return LogOffset(offset), data


def writer(fence: int, since: int, *, copy: bool = False) -> Writer:
    return Writer(Fence(fence), LogOffset(since), copy)


def delta(offset: int, data: bytes) -> bytes:
    """One that speaks of `OTHER`."""
    return encode_delta([encode_entry(OTHER, LogOffset(offset), len(data), 1, data)])


def joined(pieces: Iterable[Segment]) -> list[Segment]:
    """The same bytes in as few pieces as there can be."""
    found: list[Segment] = []
    for start, data in pieces:
        if found and log_after(*found[-1]) == start:
            found[-1] = found[-1][0], found[-1][1] + data
        elif data:
            found.append((start, data))
    return found


def own_bytes(store: KeepsLog) -> list[Segment]:
    """The own log, whatever pieces it is kept in."""
    return joined(store.own())


def said(store: KeepsLog) -> list[Segment]:
    """What the deltas say of the log of `OTHER`, in the order in which they are kept."""
    return [(entry.start, entry.data or b"") for entry in chain(*map(decode_delta, store.deltas()))]


def holds(store: KeepsLog, own: list[Segment], deltas: list[Segment]) -> None:
    same("the own log", own_bytes(store), own)
    same("what the deltas say", said(store), deltas)
    same("the end of the own log", store.end, max((log_after(*piece) for piece in own), default=LOG_BEGIN))


def what_is_appended_is_there_for_this_process_and_the_next(place: LogPlace) -> None:
    with closing(place.open()) as store:
        holds(store, [], [])
        store.append([delta(0, b"x"), delta(1, b"y")], at(0, b"abc"))
        store.append([delta(2, b"z")], None)
        store.append([], at(3, b"de"))
        store.append([], None)
        holds(store, [at(0, b"abcde")], [at(0, b"x"), at(1, b"y"), at(2, b"z")])
    with closing(place.open()) as store:
        holds(store, [at(0, b"abcde")], [at(0, b"x"), at(1, b"y"), at(2, b"z")])
        store.append([delta(3, b"!")], at(5, b"f"))
        holds(store, [at(0, b"abcdef")], [at(0, b"x"), at(1, b"y"), at(2, b"z"), at(3, b"!")])


def a_piece_that_repeats_what_is_there_adds_only_what_is_new(place: LogPlace) -> None:
    with closing(place.open()) as store:
        store.append([], at(10, b"abcd"))
        store.append([], at(14, b"ef"))
        store.append([], at(11, b"bcdefgh"))
        store.append([], at(10, b"ab"))
        same("the pieces", list(store.own()), [at(10, b"abcd"), at(14, b"ef"), at(16, b"gh")])
        same("the end", store.end, 18)


def a_piece_that_contradicts_what_is_there_changes_nothing(place: LogPlace) -> None:
    with closing(place.open()) as store:
        store.append([], at(0, b"abcd"))
        with refused(LogConflict, "a piece with other bytes than those that are there"):
            store.append([delta(0, b"x")], at(2, b"cX"))
        holds(store, [at(0, b"abcd")], [])


def a_gap_is_kept_as_one(place: LogPlace) -> None:
    """A log that is recovered in segments may have one."""
    with closing(place.open()) as store:
        store.append([], at(0, b"ab"))
        store.append([], at(10, b"cd"))
        store.fold()
        holds(store, [at(0, b"ab"), at(10, b"cd")], [])


def folding_forgets_nothing(place: LogPlace) -> None:
    with closing(place.open()) as store:
        for number in range(10):
            store.append([delta(number, b"%d" % number)], at(2 * number, b"ab"))
        due = [at(0, b"0123456789")]
        for _ in range(2):
            store.fold()
            same("what the deltas say", joined(said(store)), due)
            same("the own log", own_bytes(store), [at(0, b"ab" * 10)])
        store.append([delta(10, b"x")], at(20, b"c"))
        store.fold()
        same("the own log", own_bytes(store), [at(0, b"ab" * 10 + b"c")])
        same("what the deltas say", joined(said(store)), [at(0, b"0123456789x")])


def truncation_forgets_what_lies_before_and_nothing_else(place: LogPlace) -> None:
    """A piece that reaches beyond the offset stays whole; a delta stays while anything in it lies beyond."""
    for own_from in range(14):
        with closing(place.open()) as store:
            store.rewrite_own(LogOffset(0), [])
            store.append([], at(0, b"abcd"))
            store.append([], at(4, b"efgh"))
            store.append([], at(8, b"ij"))
            store.truncate({OWNER: LogOffset(own_from)})
            first = next((start for start, end in ((0, 4), (4, 8), (8, 10)) if end > own_from), None)
            due = [] if first is None else [at(first, b"abcdefghij"[first:])]
            same(f"the own log without what lies before {own_from}", own_bytes(store), due)
    with closing(place.open()) as store:
        for start in range(0, 8, 2):
            store.append([delta(start, b"ab")], None)
        for point, left in ((1, 4), (2, 3), (5, 2), (8, 0)):
            store.truncate({OTHER: LogOffset(point)})
            same(f"the deltas that are left when the log is truncated at {point}", len(said(store)), left)
        store.append([delta(8, b"c")], None)
        same("what came later", said(store), [at(8, b"c")])


def rewriting_keeps_what_lies_before(place: LogPlace) -> None:
    with closing(place.open()) as store:
        store.append([delta(0, b"x")], at(5, b"abcde"))
        store.append([], at(10, b"fghij"))
        store.rewrite_own(LogOffset(8), [at(8, b"XY"), at(12, b"Z")])
        holds(store, [at(5, b"abcXY"), at(12, b"Z")], [at(0, b"x")])
    with closing(place.open()) as store:
        store.rewrite_own(LogOffset(9), [])
        holds(store, [at(5, b"abcX")], [at(0, b"x")])
        store.append([], at(9, b"new"))
        holds(store, [at(5, b"abcXnew")], [at(0, b"x")])


def who_has_copied_it_is_kept_with_the_copy(place: LogPlace) -> None:
    with closing(place.open()) as store:
        store.begin(writer(5, 0))
        store.append([], at(0, b"0123"))
        store.rewrite_own(LogOffset(2), [at(2, b"xyz")], writer(7, 2, copy=True))
        same("the incarnations", store.incarnations(), (writer(5, 0), writer(7, 2, copy=True)))
        holds(store, [at(0, b"01xyz")], [])
    with closing(place.open()) as store:
        same("them again", store.incarnations(), (writer(5, 0), writer(7, 2, copy=True)))


def who_wrote_it_is_known_for_all_that_is_kept(place: LogPlace) -> None:
    with closing(place.open()) as store:
        same("the incarnations at first", store.incarnations() or (), ())
        store.begin(writer(5, 0))
        store.begin(writer(6, 0))  # it takes the place of one that has written nothing
        store.append([], at(0, b"0123"))
        store.begin(writer(9, 4))
        store.append([], at(4, b"45678"))
        store.begin(writer(11, 8, copy=True))
        writers = (writer(6, 0), writer(9, 4), writer(11, 8, copy=True))
        same("the incarnations", store.incarnations(), writers)
    with closing(place.open()) as store:
        same("the incarnations for the next process", store.incarnations(), writers)
        store.truncate({OWNER: LogOffset(4)})
        same("those that wrote what the store still has", store.incarnations(), writers[1:])


def syncing_changes_nothing_that_is_seen(place: LogPlace) -> None:
    with closing(place.open()) as store:
        store.sync()
        store.append([delta(0, b"x")], at(0, b"abc"))
        store.sync()
        holds(store, [at(0, b"abc")], [at(0, b"x")])


LOG_CHECKS: tuple[Callable[[LogPlace], None], ...] = (
    what_is_appended_is_there_for_this_process_and_the_next,
    a_piece_that_repeats_what_is_there_adds_only_what_is_new,
    a_piece_that_contradicts_what_is_there_changes_nothing,
    a_gap_is_kept_as_one,
    folding_forgets_nothing,
    truncation_forgets_what_lies_before_and_nothing_else,
    rewriting_keeps_what_lies_before,
    who_has_copied_it_is_kept_with_the_copy,
    who_wrote_it_is_known_for_all_that_is_kept,
    syncing_changes_nothing_that_is_seen,
)
"""What a causal log store promises."""
