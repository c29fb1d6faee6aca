"""The log that an instance returns with: what is at hand, and when the others are asked."""

from __future__ import annotations

import pytest

from clonos.core.identity import Origin
from clonos.core.recovery import HolderReply
from clonos.core.retrieval import retrieve
from clonos.errors import StorageUnavailable, Where

ORIGIN = Origin(2, 0)
HERE = Where("ledger", 0, 7)
LOG = bytes(range(100))


def piece(start: int, end: int) -> tuple[int, bytes]:
    return start, LOG[start:end]


def test_a_whole_store_and_the_conduit_are_enough() -> None:
    found = retrieve(ORIGIN, 20, [piece(5, 30), piece(30, 60)], piece(15, 60), fresh=False, where=HERE)
    assert not found.ask_others and not found.too_early
    assert found.base == 5
    recovered = found.put_together([], where=HERE)
    assert recovered.recorded == LOG[20:60]
    assert recovered.before == [piece(5, 20)]


def test_the_conduit_may_know_what_the_store_wrote_last() -> None:
    """An append that never ended is not damage: the conduit saw no more than what was saved before it."""
    found = retrieve(ORIGIN, 20, [piece(20, 60)], piece(15, 50), fresh=False, where=HERE)
    assert not found.ask_others
    assert found.put_together([], where=HERE).recorded == LOG[20:60]


def test_a_store_that_ends_too_early_makes_everybody_asked() -> None:
    found = retrieve(ORIGIN, 20, [piece(20, 40)], piece(15, 60), fresh=False, where=HERE)
    assert found.ask_others and found.too_early
    others = [HolderReply("downstream", [piece(40, 70)])]
    assert found.put_together(others, where=HERE).recorded == LOG[20:70]


def test_a_damaged_store_makes_everybody_asked() -> None:
    found = retrieve(ORIGIN, 20, None, piece(15, 60), fresh=False, where=HERE)
    assert found.ask_others and not found.too_early


def test_behind_a_new_conduit_everybody_is_asked() -> None:
    found = retrieve(ORIGIN, 0, [piece(0, 60)], (0, b""), fresh=True, where=HERE)
    assert found.ask_others and not found.too_early
    assert [reply.holder for reply in found.at_hand] == ["the instance's own log store"]


def test_a_snapshot_that_lies_before_what_the_conduit_has_forgotten_is_of_no_use() -> None:
    with pytest.raises(StorageUnavailable, match="forgotten what lies before 25"):
        retrieve(ORIGIN, 20, [piece(20, 60)], piece(25, 60), fresh=False, where=HERE)
