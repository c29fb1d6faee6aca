"""Values of rows as they are shown to be looked for: what a text stands for is said."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from clonos.archive.condition import as_condition
from clonos.archive.given_value import read_text

TEXTS = st.text() | st.sampled_from(
    ["", "null", '"null"', '"', "None", " null", "a ", "1", "true", "[1]", "nullable"]
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, None),
        ("null", '"null"'),
        ('"null"', '"\\"null\\""'),
        ("", '""'),
        (" a", '" a"'),
        ("[1]", '"[1]"'),
        ("nullable", "nullable"),
        ("Zürich", "Zürich"),
        ("1.10", "1.10"),
        (1 << 62, "4611686018427387904"),
        (True, "true"),
        (["null", None], '["null", null]'),
    ],
)
def test_null_and_texts(value: Any, said: str | None) -> None:
    assert as_condition(value) == said


@given(TEXTS, TEXTS)
def test_no_two_texts_are_shown_alike_and_none_as_null(one: str, other: str) -> None:
    said = as_condition(one)
    assert said is not None and said.strip() == said and said not in ("", "null")
    assert (said == as_condition(other)) == (one == other)
    assert read_text(said, pa.string(), None) == one, "as it is shown, it is found"
