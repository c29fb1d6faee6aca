"""The ledger: output that judges itself.

An exactly-once claim is usually tested by comparing a run with a second, undisturbed one. That is impossible
here: the functions are nondeterministic, so two right runs differ. The ledger makes one run enough. Per key
it writes rows

    (key, n, input_id, draw, at, prev_hash, hash)        hash = H(prev_hash, key, n, input_id, draw, at)

where `draw` is random and `at` is the clock. The rows of a key form a hash chain. A record that is processed
again after a failure draws another number and reads another time, so its row differs from what was shown
before, and so does every row behind it. Hence a run is right exactly when, for every key, n is 1..k without
gap or repeat, every hash fits and chains to the one before, and every input id occurs once.

What the verdict counts, row by row in the order in which the rows became visible:

- *missing*: input ids without any row.
- *repeated*: rows that say once more, word for word, what was said before.
- *contradicted*: rows that say something else than was said before, about the same input or the same (key,
  n).
- *broken_chain*: rows whose hash does not fit their content, that chain to no row before them, or that cannot
  be read.
- *unknown*: rows for input ids that were never given.
- *disordered*: rows of a key that became visible after a later one (only counted when asked: a table has no
  order).

`detail` is free text that an operator may add to what its hash covers (its decision, an answer it got); it is
empty in the plain ledger and then takes no part in the hash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from hashlib import blake2b
from typing import Any

__all__ = [
    "GENESIS",
    "LEDGER_SCHEMA",
    "Entry",
    "Fault",
    "Judge",
    "Verdict",
    "digest",
    "entry_of",
    "extend",
    "judge",
    "ledger",
    "ledger_of",
    "micros",
]

GENESIS = "0" * 32
"""The `prev_hash` of the first row of every key."""

LEDGER_SCHEMA = "key string, n bigint, input_id string, draw bigint, at bigint, prev_hash string, hash string"
"""The output schema of `ledger`, as PySpark takes it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PROBLEMS_KEPT = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the ledger. `at` is in microseconds since 1970-01-01 UTC."""

    key: str
    n: int
    input_id: str
    draw: int
    at: int
    prev_hash: str
    hash: str
    detail: str = ""

    def fits(self) -> bool:
        """Whether the hash is the one that the content demands."""
        return self.hash == digest(
            self.prev_hash, self.key, self.n, self.input_id, self.draw, self.at, self.detail
        )

    def row(self) -> tuple[str, int, str, int, int, str, str]:
        """The row as `LEDGER_SCHEMA` declares it."""
        return (self.key, self.n, self.input_id, self.draw, self.at, self.prev_hash, self.hash)


_FIELDS = tuple(field.name for field in fields(Entry))
_TEXTS = ("key", "input_id", "prev_hash", "hash", "detail")


def digest(prev_hash: str, key: str, n: int, input_id: str, draw: int, at: int, detail: str = "") -> str:
    """H of the design: 16 bytes of BLAKE2b over length-prefixed fields, in hexadecimal."""
    parts = [prev_hash, key, str(n), input_id, str(draw), str(at)]
    if detail:
        parts.append(detail)
    hasher = blake2b(digest_size=16, person=b"clonos-ledger")
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        hasher.update(b"%d:" % len(raw))
        hasher.update(raw)
    return hasher.hexdigest()


def micros(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC, exactly. A naive datetime is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def extend(
    state: MutableMapping[str, Any], key: str, input_id: str, draw: int, at: int, detail: str = ""
) -> Entry:
    """Append one row to the chain of `key`, whose head is kept in `state` under "n" and "hash"."""
    n = int(state.get("n", 0)) + 1
    prev_hash = str(state.get("hash", GENESIS))
    fresh = digest(prev_hash, key, n, input_id, draw, at, detail)
    state["n"] = n
    state["hash"] = fresh
    return Entry(key, n, input_id, draw, at, prev_hash, fresh, detail)


def ledger_of(field: str) -> Callable[[Any, Any, Any], Iterator[tuple[Any, ...]]]:
    """The ledger operator for rows whose identity stands in `field`; a function for `.process(...)`."""

    def operator(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        text = "/".join(str(part) for part in key) if isinstance(key, tuple) else str(key)
        entry = extend(
            ctx.state, text, str(getattr(row, field)), ctx.random.getrandbits(63), micros(ctx.now())
        )
        yield entry.row()

    operator.__name__ = f"ledger_of_{field}"
    return operator


ledger = ledger_of("input_id")
"""The ledger operator for rows with a column `input_id`; chains, as its own output has that column."""


class Fault(Enum):
    """What is wrong with one row at the moment it becomes visible."""

    REPEATED = "repeated"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the oracle says of one run. `first_problems` holds a few sentences, one per problem."""

    inputs: int
    outputs: int
    missing: int
    repeated: int
    contradicted: int
    broken_chain: int
    exact: bool
    first_problems: tuple[str, ...] = ()
    unknown: int = 0
    disordered: int = 0

    def __str__(self) -> str:
        counts = ", ".join(
            f"{getattr(self, name):,} {name}"
            for name in ("missing", "repeated", "contradicted", "broken_chain", "unknown", "disordered")
            if getattr(self, name)
        )
        head = f"{self.outputs:,} rows for {self.inputs:,} inputs: "
        return head + ("exact" if self.exact else "NOT exact: " + counts)


class _Malformed(Exception):
    """A row that is no ledger row; the text says why."""


def entry_of(row: Any) -> Entry:
    """Read a row given as `Entry`, mapping, sequence in column order, or object with the columns as
    attributes.
    """
    if isinstance(row, Entry):
        return row
    if isinstance(row, Mapping):
        values = {name: row[name] for name in _FIELDS if name in row}
    elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
        values = dict(zip(_FIELDS, row, strict=False))
    else:
        values = {name: getattr(row, name) for name in _FIELDS if hasattr(row, name)}
    absent = [name for name in _FIELDS if name != "detail" and values.get(name) is None]
    if absent:
        raise _Malformed(f"no {', '.join(absent)} in {row!r}")
    for name, value in values.items():
        if name in _TEXTS:
            values[name] = "" if value is None else str(value)
        else:
            try:
                values[name] = int(value)
            except (TypeError, ValueError):
                raise _Malformed(f"{name} is {value!r} in {row!r}") from None
    return Entry(**values)


class Judge:
    """Takes rows in the order in which they became visible; gives the verdict at any time.

    `add` says at once what is wrong with a row against what was seen before it (so that a live view can mark
    it); chains and gaps are only judged by `verdict`, when all rows are there.
    """

    def __init__(self, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self._rows = 0
        self._by_id: dict[str, list[Entry]] = {}
        self._by_place: dict[str, dict[int, list[Entry]]] = defaultdict(dict)
        self._last_n: dict[str, int] = {}
        self._repeated = 0
        self._contradicted = 0
        self._malformed = 0
        self._disordered = 0
        self._problems: list[str] = []

    def add(self, row: Any) -> Fault | None:
        """Take one row; the fault it shows against the rows before it, or `None`."""
        self._rows += 1
        try:
            entry = entry_of(row)
        except _Malformed as reason:
            self._malformed += 1
            self._note(f"row {self._rows} cannot be read: {reason}")
            return None
        of_input = self._by_id.setdefault(entry.input_id, [])
        at_place = self._by_place[entry.key].setdefault(entry.n, [])
        fault = self._fault(entry, of_input, at_place)
        if entry not in of_input:
            of_input.append(entry)
        if entry not in at_place:
            at_place.append(entry)
        if fault is None:
            self._check_order(entry)
        return fault

    def _fault(self, entry: Entry, of_input: list[Entry], at_place: list[Entry]) -> Fault | None:
        if entry in of_input:
            self._repeated += 1
            self._note(f"input {entry.input_id} was shown again as key {entry.key!r} n {entry.n}")
            return Fault.REPEATED
        if of_input or at_place:
            self._contradicted += 1
            first = (of_input or at_place)[0]
            self._note(f"{_brief(entry)} contradicts {_brief(first)}")
            return Fault.CONTRADICTED
        return None

    def _check_order(self, entry: Entry) -> None:
        if entry.n < self._last_n.get(entry.key, 0):
            self._disordered += 1
            if self._ordered:
                self._note(f"key {entry.key!r}: n {entry.n} became visible after {self._last_n[entry.key]}")
        else:
            self._last_n[entry.key] = entry.n

    def verdict(self, expected_ids: Iterable[str]) -> Verdict:
        """The verdict on the rows so far, against the input ids that were given."""
        expected = {str(each) for each in expected_ids}
        problems = list(self._problems)
        missing = sorted(expected - self._by_id.keys())
        unknown = sorted(self._by_id.keys() - expected)
        problems += [f"input {each} has no output" for each in missing[:_PROBLEMS_KEPT]]
        problems += [f"output for input {each}, which was never given" for each in unknown[:_PROBLEMS_KEPT]]
        broken = self._malformed
        for sentence in self._breaks():
            broken += 1
            if broken <= _PROBLEMS_KEPT:
                problems.append(sentence)
        disordered = self._disordered if self._ordered else 0
        wrong = len(missing) + len(unknown) + self._repeated + self._contradicted + broken + disordered
        return Verdict(
            inputs=len(expected),
            outputs=self._rows,
            missing=len(missing),
            repeated=self._repeated,
            contradicted=self._contradicted,
            broken_chain=broken,
            exact=wrong == 0,
            first_problems=tuple(problems[:_PROBLEMS_KEPT]),
            unknown=len(unknown),
            disordered=disordered,
        )

    def _breaks(self) -> Iterator[str]:
        """One sentence per row that does not fit. Any row shown as n-1 may be the one it chains to."""
        for key, places in self._by_place.items():
            for n in sorted(places):
                for entry in places[n]:
                    where = f"key {key!r} n {n} (input {entry.input_id})"
                    if not entry.fits():
                        yield f"{where}: the hash does not fit the content"
                    elif n < 1:
                        yield f"{where}: n starts at 1"
                    elif n == 1:
                        if entry.prev_hash != GENESIS:
                            yield f"{where}: the first row must chain to the beginning"
                    elif n - 1 not in places:
                        yield f"{where}: there is no row {n - 1} to chain to"
                    elif all(entry.prev_hash != before.hash for before in places[n - 1]):
                        yield f"{where}: chains to another row {n - 1} than was shown"

    def _note(self, sentence: str) -> None:
        if len(self._problems) < _PROBLEMS_KEPT:
            self._problems.append(sentence)


def _brief(entry: Entry) -> str:
    return (
        f"[input {entry.input_id}: key {entry.key!r} n {entry.n} draw {entry.draw} at {entry.at}"
        f" hash {entry.hash[:8]}]"
    )


def judge(rows: Iterable[Any], expected_ids: Iterable[str], *, ordered: bool = False) -> Verdict:
    """Judge one finished run: `rows` in visible order (any shape `entry_of` reads) against the ids given as
    input.
    """
    court = Judge(ordered=ordered)
    for row in rows:
        court.add(row)
    return court.verdict(expected_ids)
