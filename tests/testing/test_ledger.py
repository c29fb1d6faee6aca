"""The oracle must see every kind of damage, and must not see any where there is none."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import given, strategies as st

from clonos.testing.ledger import (
    GENESIS,
    Entry,
    Fault,
    Judge,
    digest,
    entry_of,
    extend,
    judge,
    ledger,
    micros,
)


class Context:
    """What the operator needs of a causal context, for one key."""

    def __init__(self, seed: int, state: dict[str, Any]) -> None:
        self.state = state
        self.random = random.Random(seed)
        self._seed = seed

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._seed)


def run(keys: list[str], seed: int = 0) -> tuple[list[Entry], list[str]]:
    """A right run: input i goes to keys[i]."""
    states: dict[str, dict[str, Any]] = {}
    rows: list[Entry] = []
    ids: list[str] = []
    for i, key in enumerate(keys):
        ctx = Context(seed * 1_000_003 + i, states.setdefault(key, {}))
        rows += map(entry_of, ledger((key,), SimpleNamespace(input_id=f"in-{i}"), ctx))
        ids.append(f"in-{i}")
    return rows, ids


runs = st.lists(st.sampled_from(["a", "b", "ü", "", "a\x1fb"]), min_size=1, max_size=30)


@given(runs)
def test_a_right_run_is_exact(keys: list[str]) -> None:
    rows, ids = run(keys)
    verdict = judge(rows, ids, ordered=True)
    assert verdict.exact, verdict
    assert (verdict.inputs, verdict.outputs, verdict.first_problems) == (len(ids), len(rows), ())


@given(runs, st.randoms())
def test_table_order_does_not_matter_unless_asked(keys: list[str], rng: random.Random) -> None:
    rows, ids = run(keys)
    shuffled = rng.sample(rows, len(rows))
    assert judge(shuffled, ids).exact
    in_order = all(
        [e.n for e in shuffled if e.key == key] == sorted(e.n for e in shuffled if e.key == key)
        for key in set(keys)
    )
    assert judge(shuffled, ids, ordered=True).exact == in_order


@given(runs, st.data())
def test_a_dropped_row_is_missing(keys: list[str], data: st.DataObject) -> None:
    rows, ids = run(keys)
    gone = data.draw(st.integers(0, len(rows) - 1))
    verdict = judge(rows[:gone] + rows[gone + 1 :], ids)
    assert verdict.missing == 1 and not verdict.exact
    later = any(e.key == rows[gone].key for e in rows[gone + 1 :])
    assert (verdict.broken_chain > 0) == later
    assert any(ids[gone] in problem for problem in verdict.first_problems)


@given(runs, st.data())
def test_a_duplicated_row_is_repeated(keys: list[str], data: st.DataObject) -> None:
    rows, ids = run(keys)
    again = data.draw(st.integers(0, len(rows) - 1))
    where = data.draw(st.integers(0, len(rows)))
    verdict = judge([*rows[:where], rows[again], *rows[where:]], ids)
    assert (verdict.repeated, verdict.contradicted, verdict.missing, verdict.broken_chain) == (1, 0, 0, 0)
    assert not verdict.exact


@given(
    runs, st.data(), st.sampled_from(["n", "draw", "at", "input_id", "key", "prev_hash", "hash", "detail"])
)
def test_a_rewritten_row_breaks(keys: list[str], data: st.DataObject, field: str) -> None:
    rows, ids = run(keys)
    i = data.draw(st.integers(0, len(rows) - 1))
    old = getattr(rows[i], field)
    forged = replace(rows[i], **{field: old + 1 if isinstance(old, int) else old + "x"})
    assert not judge([*rows[:i], forged, *rows[i + 1 :]], ids).exact


@given(runs, st.data())
def test_a_well_forged_row_still_breaks_the_chain_or_hides_at_its_end(
    keys: list[str], data: st.DataObject
) -> None:
    rows, ids = run(keys)
    i = data.draw(st.integers(0, len(rows) - 1))
    e = rows[i]
    forged = replace(e, draw=e.draw + 1, hash=digest(e.prev_hash, e.key, e.n, e.input_id, e.draw + 1, e.at))
    verdict = judge([*rows[:i], forged, *rows[i + 1 :]], ids)
    assert verdict.exact == (not any(o.key == e.key for o in rows[i + 1 :]))
    both = judge([*rows, forged], ids)
    assert (both.contradicted, both.exact) == (1, False)


@given(runs, st.data())
def test_a_rerun_from_a_checkpoint_contradicts_what_was_shown(keys: list[str], data: st.DataObject) -> None:
    """What a native restart does: the state goes back, the records come again, the draws differ."""
    rows, ids = run(keys)
    cut = data.draw(st.integers(0, len(rows) - 1))
    states: dict[str, dict[str, Any]] = {}
    for e in rows[:cut]:
        states[e.key] = {"n": e.n, "hash": e.hash}
    again = [
        extend(states.setdefault(e.key, {}), e.key, e.input_id, e.draw ^ 1, e.at + 5) for e in rows[cut:]
    ]
    verdict = judge(rows + again, ids)
    assert verdict.contradicted == len(again)
    assert (verdict.missing, verdict.repeated, verdict.broken_chain) == (0, 0, 0)


@given(runs, st.data())
def test_swapped_inputs_are_contradicted_or_missing(keys: list[str], data: st.DataObject) -> None:
    """A row whose place was taken by another input (reordering after a failure)."""
    rows, ids = run(keys)
    i = data.draw(st.integers(0, len(rows) - 1))
    e = rows[i]
    other = Entry(e.key, e.n, "in-new", 7, 7, e.prev_hash, digest(e.prev_hash, e.key, e.n, "in-new", 7, 7))
    verdict = judge([*rows, other], [*ids, "in-new"])
    assert (verdict.contradicted, verdict.missing, verdict.unknown) == (1, 0, 0)
    assert judge([*rows, other], ids).unknown == 1


def test_rows_of_every_shape_are_read() -> None:
    rows, ids = run(["a", "a"])
    assert judge([e.row() for e in rows], ids).exact
    assert judge([{name: getattr(e, name) for name in Entry.__slots__} for e in rows], ids).exact
    assert judge([SimpleNamespace(**{n: getattr(e, n) for n in Entry.__slots__}) for e in rows], ids).exact
    assert judge([tuple(map(str, e.row())) for e in rows], ids).exact


def test_garbage_is_reported_and_never_raises() -> None:
    rows, ids = run(["a"])
    garbage = [None, (), ("a",), {"key": "a"}, ("a", "x", "y", 1, 2, "p", "h"), object(), "text"]
    verdict = judge([*rows, *garbage], ids)
    assert verdict.broken_chain == len(garbage) and not verdict.exact
    assert "row 2 cannot be read" in verdict.first_problems[0]


def test_nothing_at_all() -> None:
    assert judge([], []).exact
    verdict = judge([], ["a", "b"])
    assert (verdict.missing, verdict.exact) == (2, False)
    assert "2 missing" in str(verdict)


def test_the_judge_says_at_once_what_is_wrong() -> None:
    rows, _ = run(["a", "a"])
    court = Judge()
    assert [court.add(e) for e in rows] == [None, None]
    assert court.add(rows[0]) is Fault.REPEATED
    assert court.add(replace(rows[0], draw=1)) is Fault.CONTRADICTED


def test_hash_is_stable() -> None:
    """The format is a contract: outputs of one version must be judged by the next."""
    assert digest(GENESIS, "k", 1, "i", 2, 3) == "1a996a81b80b8c8d830ca50e719b8f71"
    assert digest(GENESIS, "a", 1, "bc", 2, 3) != digest(GENESIS, "ab", 1, "c", 2, 3)
    assert micros(datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)) == 1_767_225_600_000_001
