"""`clonos checkpoint`: what a checkpoint is bound to, and what a given program would change."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos import cli
from clonos.protocol.ids import NodeId
from clonos.protocol.topology import Column, Node, NodeKind, StateVariable, Topology
from clonos.protocol.versions.upgrade import History, OpenEpoch, take_over
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.settings import read_settings
from clonos.spark.upgrade import UpgradeReport, explain

QUERY = Topology(
    (
        Node(1, NodeKind.SOURCE, "source-1", 0, source={"kind": "kafka", "subscribe": "a"}),
        Node(
            2,
            NodeKind.OPERATOR,
            "totals",
            2,
            (1,),
            key=("card",),
            form="applyInPandasWithState",
            timeout="ProcessingTimeTimeout",
            per="batch",
            watermark=("at", 5_000_000),
            state=(StateVariable("", "value", (Column("n", "int64"),)),),
        ),
        Node(3, NodeKind.SINK, "sink", 1, (2,)),
    ),
    zone="Europe/Berlin",
    settings={"spark.sql.ansi.enabled": "true"},
    realtime=False,
)


def version(text: str) -> Topology:
    changed = [replace(node, version=text) if node.number == 2 else node for node in QUERY.nodes]
    return replace(QUERY, nodes=tuple(changed))


class NoSink:
    """Nothing was shown."""

    corrupt: tuple[str, ...] = ()

    def bind(self, checkpoint: str) -> None:
        """Nothing is kept there."""

    def log_reader(self, query: str) -> NoSink:
        return self

    def deltas(self) -> list[bytes]:
        return []

    def cursors(self) -> dict[Any, Any]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


class Writer:
    """Of a program, not started."""

    def __init__(self, program: Topology) -> None:
        self._program = program

    def explain_upgrade(self, location: str) -> UpgradeReport:
        return explain(
            Checkpoint(location), self._program, {NodeId(3): NoSink()}, read_settings({}), same_source=False
        )


def second() -> Writer:
    return Writer(version("2"))


def elsewhere() -> Writer:
    return Writer(replace(QUERY, zone="UTC"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A query that has run two versions, with epoch 4 committed."""
    made = Checkpoint(str(tmp_path))
    made.open(QUERY)
    made.bind(take_over(History.of(QUERY), version("2"), OpenEpoch(3, begun=False, seen=2)).history)
    made.bind(take_over(made.history(), QUERY, OpenEpoch(4, begun=False, seen=3)).history)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "4").write_text("v1\n{}")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(["checkpoint", *arguments])
    return code, capsys.readouterr().out


def test_it_says_what_the_checkpoint_is_bound_to(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, str(checkpoint))
    assert code == 0
    for words in (
        "last committed epoch: 4; programs from epochs 0, 3, 4 on",
        "time zone Europe/Berlin, mode micro-batch",
        "spark.sql.ansi.enabled = true",
        "kind kafka, subscribe a",
        "ProcessingTimeTimeout, per batch, watermark at less 5 s, state (n int64)",
    ):
        assert words in text, text
    rows = [line.split() for line in text.splitlines()]
    assert [row[:2] for row in rows if row[:1] in (["1"], ["2"])][-2:] == [["2", "3"], ["1", "4"]]
    assert "state (n int64)" in text.splitlines()[[row[:2] for row in rows].index(["1", "4"])], (
        "of the newest"
    )


def test_the_same_for_programs(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, str(checkpoint), "--json")
    assert code == 0
    nodes = json.loads(text)["nodes"]
    assert nodes[1]["versions"] == [
        {"since": 0, "version": "1"},
        {"since": 3, "version": "2"},
        {"since": 4, "version": "1"},
    ]


def test_it_says_what_a_program_would_change(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "job", sys.modules[__name__])
    before = (checkpoint / "clonos" / "query.json").read_bytes()
    code, text = said(capsys, str(checkpoint), "--against", "job:second")
    assert code == 0
    assert "from epoch 5 on: version of node 2 ('totals') was '1' and is '2' now" in text
    code, text = said(capsys, str(checkpoint), "--against", "job:elsewhere")
    assert code == 1
    assert "the program is REFUSED" in text
    assert 'spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")' in text
    assert (checkpoint / "clonos" / "query.json").read_bytes() == before, "nothing is touched"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("job", "names no function"),
        ("nowhere:build", "cannot be imported"),
        ("json:dumps", "cannot be called without arguments: missing a required argument: 'obj'"),
    ],
)
def test_what_gives_no_program_is_refused(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], place: str, says: str
) -> None:
    assert cli.main(["checkpoint", str(checkpoint), "--against", place]) == 1
    assert says in capsys.readouterr().err


def test_a_folder_that_is_no_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["checkpoint", str(tmp_path)]) == 1
    assert "not the checkpoint of a causal query" in capsys.readouterr().err
