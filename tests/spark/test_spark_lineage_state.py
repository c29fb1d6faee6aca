"""Lineage of rows that are made of what state had kept, whatever died meanwhile: of joins, windows, aggregates, timers.

Which records a row is of is judged by what it says itself: each record has a number, and those of a key come in their
order.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from lineage_command import told
from modes import mostly
from pyspark.sql import functions as f
from streams import Place

import clonos
from clonos import cli
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedQuery

pytestmark = pytest.mark.spark

ORDERS = "k string, n long, at timestamp"
PAYMENTS = "k string, m long, later timestamp"
OUT = "k string, by string, n long, m long, many array<bigint>, begin timestamp, end timestamp"
START = dt.datetime(2024, 1, 1)
KEYS = 3
WINDOW, GAP, WITHIN, REMINDED = 6, 3, 2, 4
LAST = 60
DELAY = "1 second"
"""Some records have the same time: without a delay, one that comes behind the watermark's step is late, and dropped."""


def moment(second: float) -> str:
    return str(START + dt.timedelta(seconds=second))


def second(shown: str) -> int:
    return round((dt.datetime.fromisoformat(shown[:19]) - START).total_seconds())


ORDERS_FED = [
    {"k": f"k{n % KEYS}", "n": n, "at": moment(at)}
    for n, at in enumerate([0, 0, 1, 2, 2, 3, 4, 5, 9, 9, 10, 11, 11, 14, 16, 20, 20, 21, 24, 24, 27, 29])
]
PAYMENTS_FED = [
    {"k": f"k{m % KEYS}", "m": m, "later": moment(at)}
    for m, at in enumerate([1, 2, 2, 6, 8, 12, 13, 13, 22, 27, 27])
]


def order(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n, row.at


def payment(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.m, row.later


def listed(key: Any, window: Any, rows: list[Any], ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["ended"] = ctx.state.get("ended", 0) + 1
    yield key[0], "window", None, None, [row.n for row in rows], window.start, window.end


def remember(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state.setdefault("seen", []).append(row.n)
    ctx.timer(at=row.at + dt.timedelta(seconds=REMINDED), name=str(row.n), event=True)
    yield key[0], "reminder", row.n, None, [*ctx.state["seen"]], None, None


def remind(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """After some the state is empty, after some it has changed, after others it is as it was."""
    seen = ctx.state.get("seen", [])
    yield key[0], "reminder", int(timer.name), -1, [*seen], None, None
    if int(timer.name) % 5 == 4:
        ctx.state.clear()
    elif seen and int(timer.name) % 5 == 2:
        del seen[0]


def start(place: Place, mode: str) -> None:
    fed = place.causal(ORDERS, "orders", partitions=1)
    mapped = fed.map(order, ORDERS, name="orders", parallelism=1)
    orders = mapped.withWatermark("at", DELAY)
    paid = place.causal(PAYMENTS, "payments", partitions=1)
    paid = paid.map(payment, PAYMENTS, name="payments", parallelism=1)
    payments = paid.withWatermark("later", DELAY)
    pairs = orders.join(payments, "k", "left", within=f"{WITHIN} seconds", name="pair", parallelism=1)
    windows = orders.groupBy("k").window(f"{WINDOW} seconds").process(listed, OUT, name="window")
    sessions = (
        orders.groupBy("k")
        .session_window(f"{GAP} seconds")
        .agg(f.count("*").alias("many"), name="session", parallelism=1)
    )
    per = "batch" if mode == "microbatch" else "bundle"
    sums = f.max("n").alias("n"), f.count("*").alias("many")
    running = orders.groupBy("k").agg(*sums, name="running", parallelism=1, per=per)
    reminders = orders.groupBy("k").process(remember, OUT, name="reminder", on_timer=remind, parallelism=1)
    nothing = {each: f"cast(null as {kind})" for each, kind in (c.split() for c in OUT.split(", "))}

    def shown(stream: Any, **columns: str) -> Any:
        given = nothing | columns
        return stream.selectExpr(*(f"{given[name]} as {name}" for name in nothing))

    place.start(
        shown(mapped, k="k", by="'order'", n="n", begin="at")
        .union(shown(paid, k="k", by="'payment'", m="m"))
        .union(shown(pairs.where("n % 4 > 0"), k="k", by="'pair'", n="n", m="m"))
        .union(windows)
        .union(
            shown(
                sessions,
                k="k",
                by="'session'",
                n="many",
                begin="session_window.start",
                end="session_window.end",
            )
        )
        .union(shown(running, k="k", by="'running'", n="n", m="many"))
        .union(reminders),
        mode,
    )


def run(place: Place, mode: str) -> None:
    """Twice, so that there are states between; each time some replicas die."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    cuts = [0, 9, 18, len(ORDERS_FED)]
    for at, (begin, end) in enumerate(pairwise(cuts)):
        if at < 2:
            start(place, mode)
        orders = ORDERS_FED[begin:end]
        reached = orders[-1]["at"]
        last = PAYMENTS_FED if at == 2 else [each for each in PAYMENTS_FED if each["later"] <= reached]
        payments = [each for each in last if not begin or each["later"] > ORDERS_FED[begin - 1]["at"]]
        place.write(orders, "orders", partitions=1)
        place.write(payments, "payments", partitions=1)

        def are_there(end: int = end) -> bool:
            return sum(row["by"] == "reminder" and row["m"] is None for row in place.rows()) >= end

        place.until(are_there, "rows of all orders")
        for replica in [each for each in place.query.replicas() if each["instance"] == at % 2]:
            if replica["node"] > 4:
                place.kill(replica["node"], replica["instance"])
        if at == 0:
            place.finish()
    place.write([{"k": "end", "n": 1000 + at, "at": moment(LAST)} for at in range(2)], "orders", partitions=1)
    place.write([{"k": "end", "m": 2000, "later": moment(LAST)}], "payments", partitions=1)

    awaited: dict[str, Any] = {}  # said if it does not come

    def has_ended() -> bool:
        rows = [row for row in place.rows() if row["k"] != "end"]
        every = set(range(len(ORDERS_FED)))
        awaited["reminders"] = every - {
            row["n"] for row in rows if row["by"] == "reminder" and row["m"] == -1
        }
        awaited["in windows"] = every - {
            number for row in rows if row["by"] == "window" for number in row["many"]
        }
        awaited["in sessions"] = len(every) - sum(row["n"] for row in rows if row["by"] == "session")
        pairs = {row["n"] for row in rows if row["by"] == "pair"}
        awaited["pairs"] = {number for number in every if number % 4} - pairs
        return not any(awaited.values())

    place.until(has_ended, awaited)
    place.finish()


Of = tuple[frozenset[int], frozenset[int]]
"""Numbers of orders, and of payments."""


def of(orders: Any = (), payments: Any = ()) -> Of:
    return frozenset(orders), frozenset(payments)


def wanted(row: dict[str, Any]) -> Of:
    """What a row is of, by what it says."""
    own = [each for each in ORDERS_FED if each["k"] == row["k"]]
    match row["by"]:
        case "pair":
            return of([row["n"]], [] if row["m"] is None else [row["m"]])
        case "window":
            return of(row["many"])
        case "session":
            first, last = second(row["begin"]), second(row["end"]) - GAP
            found = [each["n"] for each in own if first <= second(each["at"].replace(" ", "T")) <= last]
            assert len(found) == row["n"]
            return of(found)
        case "running":
            found = [each["n"] for each in own[: row["m"]]]
            assert found[-1] == row["n"]
            return of(found)
    return of([row["n"]])


def at_most(rows: list[dict[str, Any]]) -> dict[str, frozenset[int]]:
    """By the id of a row, of which orders it may be besides, over what its function keeps itself: as the rows of an
    instance tell in their order."""
    found: dict[str, frozenset[int]] = {}
    kept: dict[tuple[str, str], set[int]] = defaultdict(set)  # by function and key
    when_set: dict[int, set[int]] = {}  # of a timer, what the state was made of then
    for row in sorted(rows, key=lambda row: [*map(int, row["clonos_id"].rpartition("/")[2].split("-"))]):
        state = kept[row["by"], row["k"]]
        number: int = row["n"]
        if row["by"] == "window":
            found[row["clonos_id"]] = frozenset(state)
            state.update(row["many"])
        elif row["by"] == "reminder" and row["m"] is None:
            found[row["clonos_id"]] = frozenset(state)
            when_set[number] = {*state}
            state.add(number)
        elif row["by"] == "reminder":
            found[row["clonos_id"]] = frozenset(state | when_set[number]) - {number}
            if number % 5 == 4:
                state.clear()
            elif row["many"] and number % 5 == 2:
                state |= {number, *when_set[number]}
        else:
            found[row["clonos_id"]] = frozenset()
    return found


class Found:
    """The lines of `clonos.lineage`, by the row."""

    def __init__(self, place: Place, **asked: Any) -> None:
        lines = [
            row.asDict() for row in clonos.lineage(place.spark, str(place.checkpoint), **asked).collect()
        ]
        shown = {row["clonos_id"]: row for row in place.rows()}
        self._numbers = {  # by the id that readers know them by
            line["given_as"]: shown[id][column]
            for line in lines
            for operator, column in (("orders", "n"), ("payments", "m"))
            if line["operator"] == operator and (id := line["row"]) in shown
        }
        self._lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in lines:
            self._lines[line["row"]].append(line)

    def of(self, row: str, *, exact: bool) -> Of:
        lines = [line for line in self._lines[row] if line["exact"] is exact and line["input"]]
        assert len({line["input"] for line in lines}) == len(lines), "each once"
        by_operator: dict[str, list[int]] = defaultdict(list)
        for line in lines:
            by_operator[line["input_operator"]].append(self._numbers[line["input"]])
        return of(by_operator.pop("orders", ()), by_operator.pop("payments", ()))

    def of_orders(self, what: str) -> dict[int, Any]:
        """By the number of an order, something of its line."""
        lines = [line for each in self._lines.values() for line in each if line["operator"] == "orders"]
        return {
            self._numbers[line["given_as"]]: line[what] for line in lines if line["given_as"] in self._numbers
        }

    def kept_before(self, row: str) -> set[int]:
        return {line["kept_before"] for line in self._lines[row] if line["kept_before"] is not None}


def short(row: dict[str, Any]) -> str:
    return str(row["clonos_id"].rpartition("/")[2])


def judged(place: Place) -> tuple[list[dict[str, Any]], Found]:
    rows = [row for row in place.rows() if row["k"] != "end"]
    counts = {
        by: sum(row["by"] == by for row in rows)
        for by in ("pair", "window", "session", "running", "reminder")
    }
    assert min(counts.values()) > 5 and counts["reminder"] == 2 * len(ORDERS_FED), counts
    assert any(row["by"] == "pair" and row["m"] is None for row in rows)
    exact, through = Found(place), Found(place, through_state=True)
    bounds = at_most(rows)
    assert any(bounds[row["clonos_id"]] for row in rows if row["by"] == "window")
    for row in rows:
        if row["by"] not in ("order", "payment"):
            assert exact.of(row["clonos_id"], exact=True) == wanted(row), row
            assert exact.of(row["clonos_id"], exact=False) == of()
            assert through.of(row["clonos_id"], exact=True) == wanted(row), row
            assert through.of(row["clonos_id"], exact=False) == of(bounds[row["clonos_id"]]), row
            assert not through.kept_before(row["clonos_id"])
    from_the_last_epochs(place)
    return rows, exact


def from_the_last_epochs(place: Place) -> None:
    """Rows of these are of records of epochs before, which are repeated, too."""

    def lines(**asked: Any) -> set[tuple[Any, ...]]:
        frame = clonos.lineage(place.spark, str(place.checkpoint), of="window", **asked)
        return {tuple(row) for row in frame.collect()}

    every = lines()
    last = max(line[4] for line in every)
    assert lines(since=last) == {line for line in every if line[4] >= last} != every


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_rows_are_of_what_state_had_kept(place: Place, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    run(place, mode)
    rows, found = judged(place)
    by_command(place, capsys, rows, found.of_orders("input"))
    explained(place, capsys, rows)
    what_is_not_in_the_archive_is_said(place, capsys, rows, found.of_orders("epoch"))


def by_command(
    place: Place, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], source: dict[int, str]
) -> None:
    """`source` has the ids of the source's records, by their numbers."""
    bounds = at_most(rows)
    number = {id: n for n, id in source.items()}
    positions = [int(source[n].rpartition("-")[2]) for n in range(len(ORDERS_FED))]
    assert positions == sorted(positions)
    for by in ("pair", "window", "session", "running", "reminder"):
        row = max((row for row in rows if row["by"] == by), key=lambda row: len(bounds[row["clonos_id"]]))
        back = told(place, capsys, short(row))
        ends = [each for call in back for each in call["of"] if "source" in each]
        orders = {number[each["id"]] for each in ends if each["id"] in number}
        assert (orders, len(ends) - len(orders)) == ({*wanted(row)[0]}, len(wanted(row)[1])), row
        call, *_ = told(place, capsys, short(row), "--to", "orders", "--through-state")
        assert len(call.get("at_most_of", ())) == len(bounds[row["clonos_id"]])
        assert cli.main(["lineage", str(place.checkpoint), short(row), "--through-state"]) == 0
        assert ("at most of" in capsys.readouterr().out) == bool(bounds[row["clonos_id"]])
    shown = {short(row): row for row in rows}
    for n in (0, 8, 17):
        for through, more in ((False, ()), (True, ("--through-state",))):
            found = {id for call in told(place, capsys, source[n], "--forward", *more) for id in call["rows"]}
            expected = {
                id
                for id, row in shown.items()
                if n in wanted(row)[0] or (through and n in bounds[row["clonos_id"]])
            }
            assert found & shown.keys() == expected, (n, through)


def explained(place: Place, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]]) -> None:
    """With what the records said that were kept."""
    window = max((row for row in rows if row["by"] == "window"), key=lambda row: len(row["many"]))
    pair = next(row for row in rows if row["by"] == "pair" and row["m"] is not None)
    for row, orders in ((window, window["many"]), (pair, [pair["n"]])):
        capsys.readouterr()
        assert cli.main(["explain", str(place.checkpoint), short(row), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        columns = [each["row"] for each in said["inputs"]]
        assert [each["n"] for each in columns if "n" in each] == orders
        assert [each["m"] for each in columns if "m" in each] == [row["m"]] * (row is pair)
        made = {each["made_by"]["operator"] for each in said["inputs"]}
        assert made == ({"orders", "payments"} if row is pair else {"orders"})
        assert any(each.get("kept") for each in said["inputs"])
        assert cli.main(["explain", str(place.checkpoint), short(row)]) == 0
        assert "  kept     " in capsys.readouterr().out


def what_is_not_in_the_archive_is_said(
    place: Place, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], epoch_of: dict[int, int]
) -> None:
    """Of two operators, only what is behind a state is there: what was kept before is not known."""
    archived = ArchivedQuery(str(place.checkpoint))
    cuts = {}
    for instance in [*archived.instances("window"), *archived.instances("running")]:
        cut = cuts[instance.origin] = min(epoch for epoch in instance.state_epochs if epoch > 0)
        folder = place.checkpoint / "clonos" / "archive" / "segments"
        for path in (folder / str(instance.origin.node) / str(instance.origin.instance)).iterdir():
            if int(path.name[:20]) <= cut:
                path.unlink()
    lacks = 0
    running = [row for row in rows if row["by"] == "running"]
    for row in [*running[::4], *(row for row in rows if row["by"] == "window")]:
        cut = cuts[RowId.parse(row["clonos_id"], archived.id).origin]
        known = {number for number in wanted(row)[0] if epoch_of[number] > cut}
        capsys.readouterr()
        code = cli.main(["lineage", str(place.checkpoint), short(row), "--to", "orders", "--json"])
        out, errors = capsys.readouterr()
        if not out:
            assert code == 1 and not known and errors, row
            continue
        (call,) = [json.loads(line) for line in out.splitlines()]
        assert len(call["of"]) == len(known), row
        is_whole = known == wanted(row)[0]
        assert (code, call.get("kept_before")) == ((0, None) if is_whole else (1, cut + 1)), row
        lacks += not is_whole
        if not is_whole and lacks < 3:
            assert cli.main(["lineage", str(place.checkpoint), short(row), "--to", "orders"]) == 1
            assert f"of what was kept before epoch {cut + 1}," in capsys.readouterr().out
        if row["by"] == "window":
            assert cli.main(["explain", str(place.checkpoint), short(row)]) == code
            assert (f"before epoch {cut + 1}, and not in the archive" in capsys.readouterr().out) == (
                not is_whole
            )
    assert lacks > 2
    for by in ("window", "running"):
        lines = clonos.lineage(place.spark, str(place.checkpoint), of=by)
        marked = lines.where("kept_before is not null").collect()
        assert marked and {row["kept_before"] for row in marked} <= {cut + 1 for cut in cuts.values()}
        assert all(row["input"] is None for row in marked)
