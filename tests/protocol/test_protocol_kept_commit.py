"""The commit record in the sinks: its bytes, and which one stands."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from clonos.errors import Fenced, LogCorrupt
from clonos.protocol.line.kept_commit import KeptCommit, supersedes

KEPT = st.builds(
    KeptCommit,
    fence=st.integers(0, 2**128 - 1),
    epoch=st.integers(-(2**63), 2**63 - 1),
    record=st.binary(max_size=40),
)
GOLDEN = "434c4b4301f056e1c7000000000000000300000000000000002a00000000000000ff00"


@given(KEPT)
def test_what_is_packed_comes_back(kept: KeptCommit) -> None:
    assert KeptCommit.unpack(kept.pack(), "here") == kept


def test_golden_bytes() -> None:
    kept = KeptCommit(3 << 64, 42, b"\xff\0")
    assert kept.pack().hex() == GOLDEN
    assert KeptCommit.unpack(bytes.fromhex(GOLDEN), "here") == kept


@given(KEPT, st.data())
def test_every_damage_is_noticed(kept: KeptCommit, data: st.DataObject) -> None:
    whole = bytearray(kept.pack())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    cut = bytes(whole) if data.draw(st.booleans()) else kept.pack()[:at]
    with pytest.raises(LogCorrupt, match="the commit record in here is damaged"):
        KeptCommit.unpack(cut, "here")


def test_a_later_epoch_stands_and_what_comes_late_changes_nothing() -> None:
    standing = KeptCommit(5, 7, b"seven")
    assert supersedes(standing, None, floor=-1)
    assert supersedes(KeptCommit(5, 8, b""), standing, floor=5)
    assert supersedes(KeptCommit(5, 7, b"with more"), standing, floor=5)
    assert not supersedes(KeptCommit(5, 6, b""), standing, floor=5)


def test_only_a_later_start_goes_back() -> None:
    assert supersedes(KeptCommit(6, 2, b""), KeptCommit(5, 7, b""), floor=6)


def test_a_deposed_driver_is_fenced() -> None:
    with pytest.raises(Fenced, match="fence 6 stands, this driver holds 5"):
        supersedes(KeptCommit(5, 8, b""), None, floor=6)
    with pytest.raises(Fenced):
        supersedes(KeptCommit(5, 8, b""), KeptCommit(6, 2, b""), floor=-1)
