"""Small JSON files of the checkpoint that are not what was written: said in words, with what to do."""

from __future__ import annotations

import pytest

from clonos.errors import CheckpointMismatch
from clonos.storage.sealed import sealed, unsealed

WHOLE = sealed({"query": "q"})


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "place is empty"),
        (bytes(200), "place is full of zeros"),
        (WHOLE[:-20], "place is damaged: it is cut off"),
        (b"\xff\xfe" + WHOLE, "place is damaged"),
        (b"[]", "place is damaged"),
        (b'{"version": 1}', "place is damaged"),
        (WHOLE.replace(b'"q"', b'"p"'), "place is damaged: it fails its checksum"),
        (WHOLE.replace(b'"version": 1', b'"version": 2'), "place has format version 2; this library reads 1"),
    ],
)
def test_a_damaged_file_says_so(raw: bytes, says: str) -> None:
    with pytest.raises(CheckpointMismatch) as raised:
        unsealed(raw, "place", "Do this")
    assert says in str(raised.value)
    assert str(raised.value).endswith("Do this") == ("version 2" not in says)
    assert not any(word in str(raised.value) for word in ("codec", "Expecting", "body"))


def test_a_whole_file_opens() -> None:
    assert unsealed(WHOLE, "place") == {"query": "q"}
