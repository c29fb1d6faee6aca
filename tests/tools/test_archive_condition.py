"""Values of rows as they are shown to be looked for: what a text stands for is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from clonos.archive.finding import _is_one_of, _values, as_condition

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
    assert _is_one_of(one, _values(said)), "as it is shown, it is found"
