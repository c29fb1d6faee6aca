"""Pages of channel numbers: what is told is durable, and what an overtaken driver writes counts for nothing."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import pytest

from clonos.errors import CheckpointMismatch, Fenced
from clonos.protocol.channel_numbering import Numbering, Page, standing
from clonos.protocol.source_channels import ChannelNumbers, Numbered


class Storage:
    """Pages, and who leads."""

    def __init__(self) -> None:
        self.kept: dict[Page, list[Numbered]] = {}
        self.leader = 0

    def shelf(self, start: int) -> OneShelf:
        self.leader = start
        return OneShelf(self, start)

    def numbers(self) -> ChannelNumbers:
        return ChannelNumbers(one for page in standing(self.kept) for one in self.kept[page])


class OneShelf:
    """As one driver uses it."""

    def __init__(self, storage: Storage, start: int) -> None:
        self._storage = storage
        self._start = start

    def pages(self) -> list[Page]:
        return list(self._storage.kept)

    def read(self, page: Page) -> list[Numbered]:
        return self._storage.kept[page]

    def write(self, page: Page, entries: Collection[Numbered]) -> None:
        assert page not in self._storage.kept
        self._storage.kept[page] = list(entries)

    def forget(self, page: Page) -> None:
        del self._storage.kept[page]

    def check_leads(self) -> None:
        if self._storage.leader != self._start:
            raise Fenced("another driver leads")


def begun(storage: Storage, start: int, known: Collection[Numbered] = (), heard_of: int = 0) -> Numbering:
    made = Numbering(storage.shelf(start))
    for _ in made.begin(start, known, heard_of=heard_of):
        pass
    return made


def give(numbering: Numbering, *names: str) -> list[int | None]:
    for _ in numbering.give([(1, name) for name in names]):
        pass
    return [numbering.numbers.number(1, name) for name in names]


def test_numbers_outlive_starts() -> None:
    storage = Storage()
    assert give(begun(storage, 3), "b", "a", "b") == [0, 1, 0]
    second = begun(storage, 7)
    assert give(second, "c", "a") == [2, 1]
    assert give(begun(storage, 8), "d", "c", "b", "a") == [3, 2, 0, 1]
    assert {page.start for page in storage.kept} == {8}


def test_what_had_numbers_without_pages_keeps_them_once() -> None:
    storage = Storage()
    before = [Numbered(1, 0, "t/0"), Numbered(1, 1, "t/1")]
    assert give(begun(storage, 1, before), "u/0", "t/1") == [2, 1]
    assert give(begun(storage, 2, [Numbered(1, 0, "u/0")]), "u/0") == [2], "there are pages now"


def test_no_task_is_told_a_number_before_it_is_durable() -> None:
    storage = Storage()
    numbering = begun(storage, 1)
    steps = numbering.give([(1, "a")])
    next(steps)
    assert numbering.numbers.number(1, "a") is None and storage.numbers().number(1, "a") == 0


@pytest.mark.parametrize(("first", "second"), list(product(range(4), repeat=2)))
def test_of_two_drivers_one_gives_numbers(first: int, second: int) -> None:
    """Whatever of the older one's steps come between whichever of the newer one's."""
    storage = Storage()
    old = begun(storage, 1)
    give(old, "known")
    writing = old.give([(1, "of the old")])
    told_by_old = advanced(writing, first)
    new = Numbering(storage.shelf(2))
    beginning = new.begin(2)
    advanced(beginning, second)
    try:
        told_by_old = advanced(writing, 3) or told_by_old
    except Fenced:
        told_by_old = False
    advanced(beginning, 9)
    given = give(new, "of the new", "of the old", "known")
    assert len(set(given)) == 3 and given[2] == 0
    after = begun(storage, 3)
    assert give(after, "of the new", "of the old", "known") == given
    if told_by_old:
        assert old.numbers.number(1, "of the old") == given[1]


def advanced(steps: object, most: int) -> bool:
    """Whether they are over."""
    for _ in range(most):
        try:
            next(steps)  # type: ignore[call-overload]
        except StopIteration:
            return True
    return False


def test_a_late_page_of_an_overtaken_driver_counts_for_nothing() -> None:
    storage = Storage()
    old = begun(storage, 1)
    new = begun(storage, 2)
    with pytest.raises(Fenced):
        give(old, "late")
    assert give(new, "x") == [0]
    assert give(begun(storage, 3), "x", "late") == [0, 1]


def test_a_missing_page_is_refused() -> None:
    storage = Storage()
    numbering = begun(storage, 1)
    give(numbering, "a")
    give(numbering, "b")
    del storage.kept[Page(1, 1)]
    with pytest.raises(
        CheckpointMismatch, match=r"start 1 has given only pages 0, 2 are there\. .*clonos/channels"
    ):
        begun(storage, 2)


def test_a_driver_goes_on_numbering_in_its_later_starts() -> None:
    storage = Storage()
    numbering = begun(storage, 1)
    assert give(numbering, "a") == [0]
    storage.leader = 0
    shelf = storage.shelf(4)
    numbering._shelf = shelf
    for _ in numbering.begin(4):
        pass
    assert set(storage.kept) == {Page(4, 0)}
    assert give(numbering, "b", "a") == [1, 0]
    assert give(begun(storage, 5, heard_of=4), "b", "a") == [1, 0]


def test_a_checkpoint_older_than_the_sink_has_forgotten_numbers() -> None:
    """However often it is tried: what is refused leaves nothing behind that would make the next try pass."""
    storage = Storage()
    give(begun(storage, 3), "a")
    for start in (4, 5, 9):
        with pytest.raises(
            CheckpointMismatch, match="up to start 3 of the query, and the sink has heard of start 7"
        ):
            begun(storage, start, heard_of=7)
    assert give(begun(storage, 10, heard_of=3), "b") == [1]


def test_what_is_assigned_later_has_a_higher_number() -> None:
    """Also behind numbers that were not given without a gap."""
    numbers = ChannelNumbers([Numbered(1, 2, "t/2"), Numbered(1, 5, "t/5"), Numbered(3, 0, "x")])
    numbers.add(numbers.assign([(1, "u/0"), (3, "y"), (1, "t/2")]))
    assert numbers.since(1, 6) == [Numbered(1, 6, "u/0")]
    assert numbers.since(1, 0) == [Numbered(1, 2, "t/2"), Numbered(1, 5, "t/5"), Numbered(1, 6, "u/0")]
    assert numbers.since(2, 0) == [] and numbers.nodes == {1, 3}
