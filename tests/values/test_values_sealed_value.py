"""The seal of a value on disk."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from clonos.errors import LogCorrupt
from clonos.values.sealed_value import seal, unseal


def test_the_format_of_seals_is_what_was_written_before() -> None:
    # Version, CRC-32 of "keypayload" (little-endian), payload.
    assert seal(b"payload", b"key").hex() == "01" + "ca6c26b0" + b"payload".hex()


@given(st.binary(max_size=40), st.binary(max_size=10), st.data())
def test_no_altered_or_moved_or_cut_seal_opens(payload: bytes, context: bytes, data: st.DataObject) -> None:
    sealed = seal(payload, context)
    assert unseal(sealed, context, what="it", corrupt=LogCorrupt) == payload
    at = data.draw(st.integers(0, len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for bad, under in ((bytes(flipped), context), (sealed[:at], context), (sealed, context + b"x")):
        with pytest.raises(LogCorrupt, match="it "):
            unseal(bad, under, what="it", corrupt=LogCorrupt)
