"""Numbers that are never given twice: of the entries in a sink's log, and of output after a history was given up."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from clonos.errors import CounterExhausted
from clonos.protocol.line.sink_trim import LAST_NUMBER, Entry, Page, next_number, numbers


@given(st.lists(st.tuples(st.integers(1, 4), st.sets(st.integers(0, 20))), max_size=12))
def test_no_number_is_given_twice_and_a_late_page_hits_only_what_it_means(
    rounds: list[tuple[int, set[int]]],
) -> None:
    """Writers open, append and end; what is trimmed in between is trimmed once more at the end of each round."""
    log: list[Entry] = []
    given: list[int] = []
    pages: list[Page] = []
    removed_upto = 0
    for count, dropped in rounds:
        first = next_number(max((entry.number for entry in log), default=0), removed_upto)
        fresh = [Entry(number, 7) for number in numbers(first, count)]
        log += fresh
        given += [entry.number for entry in fresh]
        before = list(log)
        for late in pages:
            log = [entry for entry in log if not late.removes(entry)]
        assert log == before
        page = Page.of(entry for at, entry in enumerate(log) if at in dropped)
        removed_upto = page.removed_upto(removed_upto)
        log = [entry for entry in log if not page.removes(entry)]
        pages.append(page)
    assert len(set(given)) == len(given)


def test_the_last_number_is_not_passed() -> None:
    assert list(numbers(LAST_NUMBER - 2, 2)) == [LAST_NUMBER - 2, LAST_NUMBER - 1]
    with pytest.raises(CounterExhausted, match="cannot count further"):
        numbers(LAST_NUMBER - 1, 2)
