"""What a checkpoint is bound to: which differences are taken over, when, and which are refused with what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.errors import CheckpointMismatch
from clonos.protocol.side_output import OutputName
from clonos.protocol.topology import (
    Column,
    DerivedInput,
    Node,
    NodeKind,
    SecondInput,
    StateVariable,
    Topology,
    Watermark,
)
from clonos.protocol.versions.binding import Change, When, compare, misfit

IN = (Column("card", "string"), Column("amount", "int"))
OUT = (Column("card", "string"), Column("total", "double"))
KEPT = StateVariable("", "value", (Column("n", "int64"), Column("sum", "double")))
QUERY = Topology(
    (
        Node(
            1,
            NodeKind.SOURCE,
            "source-1",
            0,
            columns=IN,
            source={"kind": "kafka", "subscribe": "a,b", "timestampFormat": "yyyy"},
        ),
        Node(
            2,
            NodeKind.OPERATOR,
            "totals",
            4,
            (1,),
            key=("card",),
            key_types=("string",),
            columns=OUT,
            form="applyInPandasWithState",
            timeout="NoTimeout",
            per="batch",
            watermark=("", 0),
            state=(KEPT,),
        ),
        Node(3, NodeKind.SINK, "sink", 1, (2,), columns=OUT),
    ),
    zone="Europe/Berlin",
    settings={"spark.sql.ansi.enabled": "true"},
    realtime=False,
)


def with_node(number: int, query: Topology = QUERY, **changes: Any) -> Topology:
    nodes = [replace(node, **changes) if node.number == number else node for node in query.nodes]
    return replace(query, nodes=tuple(nodes))


def only(bound: Topology, program: Topology) -> Change:
    (change,) = compare(bound, program)
    return change


def test_a_document_comes_back_as_it_was() -> None:
    said = json.loads(json.dumps(QUERY.to_document()))
    assert Topology.from_document(said) == QUERY
    assert compare(Topology.from_document(said), QUERY) == []


def test_a_document_of_the_first_format_is_read_and_binds_what_it_says(root: Path) -> None:
    said = json.loads((root / "tests" / "golden" / "topology_v1.json").read_text())
    old = Topology.from_document(said)
    assert old.zone is None
    now = with_node(1, output="struct<card:string,amount:int>")
    now = with_node(2, now, output="struct<card:string,total:double>")
    assert compare(old, now) == []
    more = with_node(2, now, output="struct<card:string,total:double,at:timestamp>", columns=None)
    change = only(old, more)
    assert (change.when, change.says) == (When.EPOCH, "has more columns: at:timestamp")
    assert only(old, with_node(2, now, parallelism=5)).when is When.REFUSED
    other = only(old, with_node(2, now, output="struct<card:string>"))
    assert other.when is When.REFUSED


SIDES = {"late": (Column("card", "string"), Column("at", "timestamp"))}


def test_a_document_of_the_second_format_is_read(root: Path) -> None:
    said = json.loads((root / "tests" / "golden" / "topology_v2.json").read_text())
    assert Topology.from_document(said) == QUERY


def test_a_document_of_this_format_is_as_it_was(root: Path) -> None:
    right = SecondInput((1,), ("card",), ("string",), ("at", 5_000_000))
    query = with_node(2, side_outputs=SIDES, right=right)
    said = json.loads((root / "tests" / "golden" / "topology_v4.json").read_text())
    assert Topology.from_document(said) == query and json.loads(json.dumps(query.to_document())) == said


@pytest.mark.parametrize("input", ["left", "right"])
def test_the_watermark_of_each_input_is_bound(input: str) -> None:
    """The delay may change, another column may not; what an older document does not say fits."""

    def of(watermark: Watermark | None) -> Topology:
        at, other = ("at", 5_000_000), watermark
        left, right = (other, at) if input == "left" else (at, other)
        return with_node(2, watermark=left, right=SecondInput((1,), ("card",), ("string",), right))

    old = of(("at", 5_000_000))
    assert compare(old, of(None)) == []
    slower = only(old, of(("at", 9_000_000)))
    assert slower.when is When.EPOCH and "watermark" in slower.what
    for changed in (("moment", 5_000_000), ("", 0)):
        assert only(old, of(changed)).when is When.REFUSED
    assert only(of(("", 0)), old).when is When.EPOCH


def test_side_outputs_come_back_and_bind_their_readers(root: Path) -> None:
    side = OutputName("late")
    query = with_node(
        3, with_node(2, side_outputs=SIDES, right=SecondInput((1,), ("card",), ("string",))), reads={2: side}
    )
    said = json.loads((root / "tests" / "golden" / "topology_v3.json").read_text())
    assert Topology.from_document(said) == query
    other = only(query, with_node(3, query, reads={}))
    assert other.when is When.REFUSED and "side outputs read of node 3" in str(other)
    swapped = only(query, with_node(2, query, right=None))
    assert swapped.when is When.REFUSED and "second input of node 2" in str(swapped)
    wider = {"late": (*SIDES["late"], Column("why", "string"))}
    change = only(query, with_node(2, query, side_outputs=wider))
    assert (change.when, str(change)) == (
        When.EPOCH,
        "the side output 'late' of node 2 ('totals') has more columns: why string",
    )
    assert only(query, with_node(2, query, side_outputs={"late": SIDES["late"][:1]})).when is When.REFUSED
    assert compare(query, with_node(2, query, side_outputs={**SIDES, "more": OUT})) == []
    gone = only(query, with_node(2, query, side_outputs={}))
    assert (gone.when, gone.node) == (When.EPOCH, None) and "'late' of node 2" in str(gone)


def test_a_document_of_a_later_format_is_refused() -> None:
    with pytest.raises(
        CheckpointMismatch, match=r"format version 9, this library reads 1, 2, 3, 4\. Finish the query"
    ):
        Topology.from_document({**QUERY.to_document(), "version": 9})


@pytest.mark.parametrize(
    ("change", "says", "todo"),
    [
        ({"kind": NodeKind.SINK}, "kind of node 2", "new checkpointLocation"),
        ({"name": "other"}, "name of node 2", "binds state"),
        ({"parallelism": 5}, "parallelism of node 2 ('totals') was 4 and is 5 now", "parallelism=4"),
        ({"upstream": (1, 3)}, "upstream of node 2", "new checkpointLocation"),
        ({"key": ("total",)}, "key of node 2 ('totals') was ['card'] and is ['total'] now", "kept under it"),
        ({"key_types": ("int",)}, "types of the key of node 2", "kept under it"),
        ({"form": "process"}, "form of node 2", "use that"),
        ({"columns": OUT[:1]}, "the output of node 2 ('totals') lacks 'total'", "keep the others"),
        ({"columns": OUT[::-1]}, "has the order total, card; it was card, total", "order"),
        ({"columns": (OUT[0], Column("total", "float"))}, "as float; it was double", "new column"),
        ({"columns": (*OUT, Column("n", "int", False))}, "'n' in addition, which may not be null", "null"),
        ({"columns": (OUT[0], Column("total", "double", False))}, "without null", "null"),
        ({"state": (replace(KEPT, kind="list"),)}, "another kind", "another name"),
        ({"state": (replace(KEPT, ttl=5),)}, "has a time to live now", "another name"),
        ({"state": (replace(KEPT, columns=KEPT.columns[::-1]),)}, "the order sum, n", "new version"),
        ({"state": (replace(KEPT, columns=KEPT.columns[:1]),)}, "lacks 'sum'", "new version"),
        (
            {"state": (replace(KEPT, columns=(KEPT.columns[0], Column("all", "double"))),)},
            "lacks 'sum'",
            "migrate=",
        ),
        (
            {"state": (replace(KEPT, columns=(Column("n", "int32"), KEPT.columns[1])),)},
            "as int32",
            "migrate=",
        ),
        (
            {"state": (replace(KEPT, columns=(Column("m", "int64"), *KEPT.columns)),)},
            "the order m, n, sum; it was n, sum",
            "new version",
        ),
    ],
)
def test_what_would_change_the_meaning_is_refused(change: dict[str, Any], says: str, todo: str) -> None:
    found = only(QUERY, with_node(2, **change))
    assert found.when is When.REFUSED
    assert says in str(found)
    assert todo in found.todo


@pytest.mark.parametrize(
    ("number", "change", "what"),
    [
        (2, {"version": "2"}, "version"),
        (2, {"columns": (*OUT, Column("at", "timestamp"))}, "the output"),
        (1, {"columns": (IN[0], Column("at", "timestamp"), IN[1])}, "the output"),
        (3, {"columns": (*OUT, Column("at", "timestamp"))}, "the columns"),
        (2, {"timeout": "ProcessingTimeTimeout"}, "the timeout"),
        (2, {"per": "bundle"}, "per"),
        (2, {"watermark": ("at", 5)}, "the watermark"),
        (2, {"state": (replace(KEPT, columns=(*KEPT.columns, Column("max", "double"))),)}, "the state"),
        (2, {"state": (KEPT, StateVariable("seen", "map", (), ()))}, "state variable 'seen'"),
        (2, {"state": ()}, "the state"),
        (1, {"source": {"kind": "kafka", "subscribe": "a,b", "timestampFormat": "MM"}}, "timestampFormat"),
    ],
)
def test_what_takes_effect_from_an_epoch_on(number: int, change: dict[str, Any], what: str) -> None:
    found = only(QUERY, with_node(number, **change))
    assert (found.what, found.when) == (what, When.EPOCH)


def test_state_that_a_new_version_migrates_may_have_any_fields() -> None:
    narrower = (replace(KEPT, columns=KEPT.columns[:1]),)
    changes = compare(QUERY, with_node(2, state=narrower, version="2", migrates=frozenset({""})))
    assert [change.when for change in changes] == [When.EPOCH, When.EPOCH]
    same_version = compare(QUERY, with_node(2, state=narrower, migrates=frozenset({""})))
    assert [change.when for change in same_version] == [When.REFUSED], "nothing would migrate it"


def test_another_session_time_zone_is_refused_with_the_setting() -> None:
    found = only(QUERY, replace(QUERY, zone="UTC"))
    assert found.when is When.REFUSED
    assert 'spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")' in found.todo


def test_time_may_not_go_backwards_in_meaning() -> None:
    timed = with_node(2, timeout="EventTimeTimeout", watermark=("at", 5))
    assert only(timed, with_node(2, timed, watermark=("at", 9))).when is When.EPOCH
    for change in ({"watermark": ("other", 5)}, {"watermark": ("", 0)}, {"timeout": "ProcessingTimeTimeout"}):
        assert only(timed, with_node(2, timed, **change)).when is When.REFUSED, change


@pytest.mark.parametrize(
    ("change", "when"),
    [
        ({"subscribe": "a,b,c"}, When.AT_ONCE),
        ({"subscribe": "a"}, When.REFUSED),
        ({"kind": "clonos"}, When.REFUSED),
        ({"channel": "p"}, When.REFUSED),
        ({"path": "elsewhere"}, When.REFUSED),
    ],
)
def test_another_source_is_refused_and_more_topics_are_not(change: dict[str, str], when: When) -> None:
    source = {**(QUERY.nodes[0].source or {}), **change}
    assert only(QUERY, with_node(1, source=source)).when is when


@pytest.mark.parametrize(
    ("before", "now", "when"),
    [
        ("in", "/data/in", When.AT_ONCE),
        ("./a/../in", "/data/in", When.AT_ONCE),
        ("../in", "/data/in", When.AT_ONCE),
        ("/data/x/../in", "/data/in", When.AT_ONCE),
        ("/data/in", "hdfs://name/data/in", When.AT_ONCE),
        ("in;/b", "/data/in;/b", When.AT_ONCE),
        ("in", "/data/out", When.REFUSED),
        ("in", "/data/begin", When.REFUSED),
        ("/in", "/data/in", When.REFUSED),
        ("/data/in", "in", When.REFUSED),
        ("hdfs://name/in", "/in", When.REFUSED),
        ("in", "/data/in;/b", When.REFUSED),
    ],
)
def test_a_path_that_is_in_full_now_may_be_the_one_before(before: str, now: str, when: When) -> None:
    """Earlier versions wrote it down as it was given."""
    bound = with_node(1, source={"kind": "clonos", "path": before})
    assert only(bound, with_node(1, bound, source={"kind": "clonos", "path": now})).when is when


def test_what_may_change_at_any_time() -> None:
    assert only(QUERY, replace(QUERY, realtime=True)).when is When.AT_ONCE
    assert only(QUERY, replace(QUERY, settings={"spark.sql.ansi.enabled": "false"})).when is When.EPOCH


def test_another_set_of_nodes_is_refused() -> None:
    fewer = replace(QUERY, nodes=QUERY.nodes[:2])
    assert "sink 'sink' is gone" in str(only(QUERY, fewer))
    assert "sink 'sink' is new" in str(only(fewer, QUERY))


def with_sinks(*sinks: tuple[str, dict[str, Any]]) -> Topology:
    made = [
        replace(QUERY.nodes[2], number=number, name=name, **given)
        for number, (name, given) in enumerate(sinks, 3)
    ]
    return replace(QUERY, nodes=(*QUERY.nodes[:2], *made))


ROWS: tuple[str, dict[str, Any]] = ("rows", {})
LATE: tuple[str, dict[str, Any]] = ("late", {"reads": {2: OutputName("late")}})


@pytest.mark.parametrize(
    ("sinks", "says"),
    [
        ((ROWS, LATE, ("copy", {})), "the set of nodes of the query changes: sink 'copy' is new"),
        ((("copy", {}), ROWS, LATE), "the set of nodes of the query changes: sink 'copy' is new"),
        ((ROWS,), "the set of nodes of the query changes: sink 'late' is gone"),
        ((LATE,), "the set of nodes of the query changes: sink 'rows' is gone"),
        ((LATE, ROWS), "name of node 3 ('late') was 'rows' and is 'late' now"),
        ((ROWS, ("later", LATE[1])), "name of node 4 ('later') was 'late' and is 'later' now"),
        ((ROWS, ("late", {})), "side outputs read of node 4 ('late')"),
        ((("rows", {"upstream": (1,)}), LATE), "upstream of node 3 ('rows')"),
        ((("rows", {"parallelism": 2}), LATE), "parallelism of node 3 ('rows') was 1 and is 2 now"),
    ],
)
def test_which_sinks_there_are_and_in_which_order_is_bound(
    sinks: tuple[tuple[str, dict[str, Any]], ...], says: str
) -> None:
    bound = with_sinks(ROWS, LATE)
    assert compare(bound, with_sinks(ROWS, LATE)) == []
    changes = compare(bound, with_sinks(*sinks))
    assert {change.when for change in changes} == {When.REFUSED}
    assert any(says in str(change) for change in changes), [*map(str, changes)]


def test_columns_that_continue_others() -> None:
    assert misfit(OUT, (*OUT, Column("n", "int"))) is None
    assert misfit((Column("n", "int", False),), (Column("n", "int"),)) is None


def test_other_expressions_wait_for_the_end_of_an_epoch() -> None:
    """What a node reads of another one through expressions."""
    read = DerivedInput("where (amount > 1)", "1f", OUT)
    query = with_node(3, derived={2: read})
    assert Topology.from_document(json.loads(json.dumps(query.to_document()))) == query
    assert compare(query, query) == []
    other = only(query, with_node(3, derived={2: read._replace(said="where (amount > 2)", digest="2f")}))
    assert (other.when, other.node) == (When.EPOCH, None)
    assert str(other) == (
        "what is read of node 2 of node 3 ('sink') went through 'where (amount > 1)' and goes through "
        "'where (amount > 2)' now"
    )
    for bound, program in ((query, QUERY), (QUERY, query)):
        assert only(bound, program).when is When.EPOCH and "nothing" in str(only(bound, program))
    narrow = with_node(3, derived={2: DerivedInput("select card", "3f", OUT[:1])})
    whens = [change.when for change in compare(query, narrow)]
    assert whens == [When.REFUSED, When.EPOCH]
    assert "derived" not in json.dumps(QUERY.to_document())
