"""What can be seen to be wrong with Spark's file of what an epoch reads."""

from __future__ import annotations

import pytest

from clonos.storage.epoch_plan import damage_of

METADATA = '{"batchWatermarkMs":0,"conf":{}}'


@pytest.mark.parametrize(
    "offsets", ['{"version":1,"positions":[1,2]}', "-\n{}", "17", '[1]\n"text"', "anything", "null\n-"]
)
def test_whole_files_are_whole(offsets: str) -> None:
    assert damage_of(f"v1\n{METADATA}\n{offsets}".encode()) is None
    assert damage_of(f"v1\n\n{offsets}".encode()) is None  # Spark once wrote no metadata
    assert damage_of(f"v2\n{offsets}".encode()) is None  # of a form that is not known here


def test_wherever_an_offset_of_a_log_is_cut_off_it_is_seen() -> None:
    whole = f'v1\n{METADATA}\n-\n{{"version":1,"positions":[1,2]}}'.encode()
    cuts = [at for at in range(1, len(whole)) if damage_of(whole[:at]) is None]
    before_it = whole.index(b"{", whole.index(b"-"))
    assert cuts == [before_it - 2, before_it - 1, before_it], (
        "a line that is missing as a whole is Spark's to see"
    )
    assert damage_of(whole) is None


def test_it_says_where() -> None:
    assert damage_of(f"v1\n{METADATA}\n{{".encode()) == "line 3 is cut off, or is not what was written: {"
    assert damage_of(b"v1") == "it ends after line 1, before the offsets"
