"""The times that latency is measured by: of what a row may be made, and which rows of a bundle a sink counts."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, strategies as st

from clonos.protocol.engine.output_commit import SinkInstance
from clonos.protocol.ids import Epoch, InstanceId
from clonos.protocol.ingestion import UNKNOWN, Ingested, PendingInput, oldest, within
from clonos.protocol.ports import Bundle

ONE, TWO = 1, 65
runs = st.lists(st.builds(Ingested, st.sampled_from((ONE, TWO)), st.integers(1, 5), st.integers(1, 9)))


def test_of_a_bundle_that_is_used_up_nothing_is_left() -> None:
    pending = PendingInput()
    assert pending.oldest is None
    pending.take([Ingested(ONE, 2, 50), Ingested(TWO, 1, 40)])
    assert pending.oldest == 40
    pending.keep({})
    assert pending.oldest is None
    pending.take([])
    assert pending.oldest is None


def test_the_time_of_what_waits_is_kept_by_channel() -> None:
    """The last records of a channel wait, since it is consumed in its order."""
    pending = PendingInput()
    pending.take([Ingested(ONE, 3, 10)])
    pending.take([Ingested(TWO, 3, 20)])
    pending.take([Ingested(ONE, 1, 30)])
    pending.keep({ONE: 2, TWO: 1})
    assert pending.oldest == 10
    pending.keep({ONE: 1, TWO: 1})
    assert pending.oldest == 20
    pending.keep({ONE: 1})
    assert pending.oldest == 30


def test_what_is_not_known_of_a_part_is_not_known() -> None:
    assert oldest([Ingested(ONE, 1, 7), Ingested(TWO, 1, UNKNOWN)]) == UNKNOWN
    assert oldest([]) == UNKNOWN


@given(st.lists(runs, max_size=200), st.integers(0, 40))
def test_what_is_kept_is_never_too_young(bundles: list[list[Ingested]], waiting: int) -> None:
    """However many bundles come meanwhile, of which only so many are told apart."""
    pending = PendingInput()
    times = []
    for bundle in bundles:
        pending.take(bundle)
        times += [each.time for each in bundle if each.channel == ONE for _ in range(each.rows)]
    left = times[len(times) - waiting :] if waiting < len(times) else times
    pending.keep({ONE: len(left)} if left else {})
    assert pending.oldest is None if not left else pending.oldest is not None and pending.oldest <= min(left)


@given(runs, st.lists(st.integers(0, 60), max_size=8).map(sorted))
def test_rows_of_parts_of_a_bundle_have_their_own_times(given: list[Ingested], bounds: list[int]) -> None:
    def times(ingested: Iterable[Ingested]) -> list[tuple[int, int]]:
        return [(channel, time) for channel, rows, time in ingested for _ in range(rows)]

    bounds = [min(bound, len(times(given))) for bound in bounds]
    parts = [(begin, end) for begin, end in zip(bounds[::2], bounds[1::2], strict=False) if begin < end]
    wanted = [time for begin, end in parts for time in times(given)[begin:end]]
    assert times(within(given, parts)) == wanted


def test_a_sink_counts_what_it_makes_visible_and_no_row_that_is_there() -> None:
    sink = SinkInstance("sink", InstanceId(0), {ONE: 2})
    sink.open_epoch(Epoch(1))
    rows = [("a",)] * 5
    ingested = [Ingested(ONE, 1, 10), Ingested(ONE, 2, 20), Ingested(TWO, 2, 30)]
    bundle = Bundle([ONE, ONE, ONE, TWO, TWO], [2, 3, 4, 1, 2], rows, ingested=ingested)
    write = sink.take(bundle)
    assert write is not None
    assert write.ids == ["1-0-3", "1-0-4", "1-1-1", "1-1-2"]
    assert write.ingested == [Ingested(ONE, 2, 20), Ingested(TWO, 2, 30)]
