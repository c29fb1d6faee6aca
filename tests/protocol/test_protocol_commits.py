"""The record of a commit in bytes, and what follows when the checkpoint, the sink and Spark tell different things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos.errors import CheckpointMismatch, LogCorrupt, SnapshotCorrupt, Where
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin, OutputNumber
from clonos.protocol.line.commit_reconciliation import Found, check_last_output, reconcile
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.final_snapshot import FinalSnapshot
from clonos.protocol.line.missing_end import check_log_has_no_earlier_epoch, check_no_end_is_missing
from clonos.protocol.line.recovery_line import Point, RecoveryLine
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.topology import Node, NodeKind, Topology

GOLDEN = Path(__file__).parent.parent / "golden" / "core_commit_v1.bin"
CHAIN = Topology(
    (
        Node(1, NodeKind.SOURCE, "events", 0),
        Node(2, NodeKind.OPERATOR, "first", 2, (1,)),
        Node(3, NodeKind.OPERATOR, "second", 1, (2,)),
        Node(4, NodeKind.SINK, "sink", 2, (3,)),
    )
)
ONE, TWO, SINK = Origin(2, 0), Origin(2, 1), Origin(3, 0)


def name(epoch: int) -> str:
    return str(SnapshotName(epoch, Fence.of(5), epoch, final=True))


RECORD = CommitRecord(
    query="465cb2b0a64941129eb76538d19652e8",
    epoch=7,
    generation=3,
    ends={ONE: Ended("a snapshot", 1200, 40), TWO: Ended("an older one", 8, 0)},
    cursors={SINK: {130: 40, 131: -1}},
    versions={2: "1"},
    offsets=b'v1\n{"batchWatermarkMs":0}\n{"0":12}',
    commits=b'v1\n{"nextBatchWatermarkMs":0}',
)


def record(epoch: int, number: int = 10) -> CommitRecord:
    return CommitRecord(
        query="q",
        epoch=epoch,
        generation=1,
        ends={ONE: Ended(name(epoch), 100 * epoch + 100, number)},
        cursors={SINK: {130: number}},
        offsets=b"offsets %d" % epoch,
        commits=b"commit %d" % epoch,
    )


def test_the_golden_file_opens_and_is_written_again() -> None:
    raw = GOLDEN.read_bytes()
    assert CommitRecord.from_bytes(raw, "the golden file") == RECORD
    assert RECORD.to_bytes() == raw


def test_damage_and_other_versions_are_refused() -> None:
    raw = RECORD.to_bytes()
    for at in range(len(raw)):
        changed = bytes([*raw[:at], raw[at] ^ 1, *raw[at + 1 :]])
        with pytest.raises(LogCorrupt, match="commit record in here"):
            CommitRecord.from_bytes(changed, "here")
    for short in (b"", raw[:5], raw[:-1]):
        with pytest.raises(LogCorrupt, match="is damaged"):
            CommitRecord.from_bytes(short, "here")
    with pytest.raises(LogCorrupt, match="has format version 2; this library reads 1"):
        CommitRecord.from_bytes(raw[:4] + b"\x02" + raw[5:], "here")


def found(committed: int, kept: int | None, shown: int | None, **more: Any) -> Found:
    newest = max(kept if kept is not None else -1, shown if shown is not None else -1)
    there = {epoch: b"offsets %d" % epoch for epoch in range(max(committed, newest) + 1)}
    return Found(
        committed=committed,
        passed=more.pop("passed", committed),
        begun=more.pop("begun", 0),
        offsets=more.pop("offsets", there),
        commits=more.pop("commits", {epoch: b"commit %d" % epoch for epoch in range(committed + 1)}),
        kept=more.pop("ours", record(kept) if kept is not None else None),
        shown=more.pop("records", {SINK.node: record(shown)} if shown is not None else {}),
        cursors=more.pop("cursors", {SINK: {130: 10}}),
        damaged=more.pop("damaged", {}),
        snapshots=more.pop("snapshots", {ONE: [name(epoch) for epoch in range(newest + 1)]}),
    )


@pytest.mark.parametrize(
    ("committed", "kept", "shown", "goes_on", "repairs"),
    [
        (-1, None, None, -1, None),  # new
        (4, None, None, 4, None),  # of a version that kept no records, or before the first
        (4, 4, 4, 4, None),
        (5, 4, 4, 5, None),  # the driver died before it recorded epoch 5
        (5, 5, 4, 5, None),  # ... and before it told the sink
        (5, 4, 5, 5, None),  # the checkpoint's record is an older copy, everything else is not
        (3, 4, 4, 4, 4),  # Spark has lost a commit
        (2, 4, 4, 4, 4),  # ... two of them
        (3, 3, 4, 4, 4),  # ... together with our record of it
        (-1, 0, 0, 0, 0),  # ... the first one
    ],
)
def test_where_the_query_goes_on(
    committed: int, kept: int | None, shown: int | None, goes_on: int, repairs: int | None
) -> None:
    course = reconcile(found(committed, kept, shown))
    assert course.committed == goes_on
    assert (course.repair.epoch if course.repair else None) == repairs


def test_a_start_that_has_begun_is_not_gone_back_behind() -> None:
    """What it began behind was durable: one part of the checkpoint is an older copy than another."""
    for begun in (0, 4, 5):
        assert reconcile(found(4, 4, 4, begun=begun)).committed == 4
    assert reconcile(found(3, 4, 4, begun=5)).repair == record(4)
    assert reconcile(found(3, None, None, passed=4, begun=5)).committed == 3  # Spark has planned epoch 5
    with pytest.raises(
        CheckpointMismatch, match=r"goes on with epoch 4, but its last start has begun with epoch 5"
    ):
        reconcile(found(3, 3, 3, begun=5))
    with pytest.raises(
        CheckpointMismatch, match=r"goes on with epoch 0, but its last start has begun with epoch 1"
    ):
        reconcile(found(-1, None, None, begun=1))


def test_a_commit_that_is_lost_behind_the_newest_record_is_written() -> None:
    course = reconcile(found(4, 4, 4, passed=5))
    assert (course.committed, course.completes, course.commits) == (5, 5, record(4).commits)
    assert course.repair is None
    both = reconcile(found(3, 4, 4, passed=5))
    assert (both.committed, both.completes, both.repair) == (5, 5, record(4))
    assert reconcile(found(4, 4, 4)).completes is None
    # No record says what the file was like
    assert reconcile(found(3, None, None, passed=4)).completes is None


def test_offsets_that_are_lost_with_the_commit_are_written_again_too() -> None:
    assert reconcile(found(3, 4, 4, offsets={3: b"offsets 3"})).repair == record(4)
    assert reconcile(found(-1, 0, 0, offsets={})).repair == record(0)
    with pytest.raises(CheckpointMismatch, match=r"Spark's offsets of epoch 3 are not there either"):
        reconcile(found(2, 4, 4, offsets={2: b"offsets 2"}))


@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_files_of_another_time_are_written_again_where_no_start_went_on_from_them(kind: str) -> None:
    there = found(5, 4, 4)
    swapped = {**getattr(there, kind), 4: getattr(there, kind)[3]}
    course = reconcile(found(4, 4, 4, passed=4, **{kind: swapped}))
    assert (course.committed, course.repair) == (4, record(4))
    refused = rf"file {kind}/4 .* goes on to epoch 5: the file is damaged, or one part .* another time"
    with pytest.raises(CheckpointMismatch, match=refused):
        reconcile(found(5, 4, 4, **{kind: swapped}))
    assert reconcile(found(5, 4, 4, **{kind: {**getattr(there, kind), 5: b"others"}})).repair is None
    assert reconcile(found(4, 4, 4, **{kind: {}})).repair is None, "there is nothing to compare"


def test_what_spark_has_planned_anew_is_not_called_committed() -> None:
    with pytest.raises(CheckpointMismatch, match="has planned epoch 4 anew, with other offsets"):
        reconcile(found(3, 4, 4, offsets={3: b"offsets 3", 4: b"others"}))


def test_offsets_that_are_damaged_are_written_again_from_the_record_of_their_epoch_or_refused() -> None:
    cut = {3: b"offsets 3", 4: b"offs"}
    damaged = {4: "offsets/4: line 1 is cut off"}
    assert reconcile(found(4, 4, 4, offsets=cut, damaged=damaged)).repair == record(4)
    assert reconcile(found(3, 4, 4, offsets=cut, damaged=damaged)).repair == record(4)  # not planned anew
    ahead = reconcile(found(5, 4, 4, offsets={**cut, 5: b"offsets 5"}, damaged=damaged))  # 5 was not recorded
    assert (ahead.committed, ahead.repair) == (5, record(4))
    with pytest.raises(CheckpointMismatch, match=r"file offsets/4 .* goes on to epoch 5"):
        commits = {4: b"others", 5: b"commits 5"}
        reconcile(found(5, 4, 4, offsets={**cut, 5: b"offsets 5"}, commits=commits, damaged=damaged))
    for unrecorded in (
        found(4, 3, 3, offsets=cut, damaged=damaged),  # the driver died before it recorded epoch 4
        found(3, 3, 3, offsets=cut, damaged=damaged),  # Spark has planned it
        found(4, None, None, offsets=cut, damaged=damaged),
        found(4, 4, 4, damaged={3: "offsets/3: line 1 is cut off"}),
    ):
        with pytest.raises(
            CheckpointMismatch, match=r"epoch \d is damaged: offsets/\d: line 1 .* Do not remove it"
        ):
            reconcile(unrecorded)


@pytest.mark.parametrize(("committed", "kept", "shown"), [(2, 2, 5), (-1, None, 5), (5, 5, 5), (4, 5, 5)])
def test_an_older_copy_is_refused_with_the_difference(committed: int, kept: int | None, shown: int) -> None:
    older: Mapping[Origin, list[str]] = {ONE: [name(epoch) for epoch in range(3)]}
    spark = f"epoch {committed}" if committed >= 0 else "no epoch"
    ours = f"epoch {kept}" if kept is not None else "no epoch"
    with pytest.raises(CheckpointMismatch) as raised:
        reconcile(found(committed, kept, shown, snapshots=older))
    said = str(raised.value)
    assert f"Spark's log ends with {spark}" in said and f"checkpoint with {ours}" in said
    assert f"the sink has seen the commit of epoch {shown}" in said
    assert f"{name(5)} of node 2, instance 0" in said and "Restore the whole checkpoint" in said


def test_a_later_end_stands_in_for_one_that_went() -> None:
    assert reconcile(found(6, 4, 4, snapshots={ONE: [name(6)]})).committed == 6
    with pytest.raises(CheckpointMismatch):
        reconcile(found(5, 4, 4, snapshots={ONE: [name(6)]}))


def test_a_sink_that_lost_rows_is_refused_and_another_sink_is_not() -> None:
    with pytest.raises(CheckpointMismatch, match=r"channel 130 up to number 10 .* has them up to 7"):
        reconcile(found(4, 4, 4, cursors={SINK: {130: 7}}))
    with pytest.raises(CheckpointMismatch, match="up to -1"):
        reconcile(found(4, 4, 4, cursors={}))
    assert reconcile(found(4, 4, None, cursors={})).committed == 4


def test_a_sinks_record_says_whose_place_it_lies_in() -> None:
    """Version 1 without it, as the golden file, is that of earlier versions: of every sink that it has a cursor of."""
    alone = RECORD.kept_for(5, None)
    assert CommitRecord.from_bytes(alone.to_bytes(), "here") == alone
    assert (alone.is_of(5), alone.is_of(3), RECORD.is_of(3)) == (True, False, True)
    assert RECORD.kept_for(7, alone).sinks == {5, 7}
    assert RECORD.kept_for(7, RECORD).sinks == {SINK.node, 7}


def test_a_sink_that_lost_output_of_a_commit_without_a_record_is_refused() -> None:
    """Its snapshot says what the sink had been sent."""
    finals = {ONE: FinalSnapshot(Point(name(5), 600, {0: 7, 1: 9}, {}), OutputNumber(9))}
    chain = Topology((*CHAIN.nodes[:2], replace(CHAIN.nodes[3], number=3, upstream=(2,))))
    has_all = {Origin(3, 0): {ONE.channel: 7}, Origin(3, 1): {ONE.channel: 9}}
    before = record(4, 6)
    check_last_output(found(5, 4, 4, cursors=has_all), before, chain, 5, finals)
    lost = has_all | {Origin(3, 1): {ONE.channel: 8}}
    with pytest.raises(CheckpointMismatch, match=r"instance 1 .* up to number 9 when epoch 5 .* up to 8"):
        check_last_output(found(5, 4, 4, cursors=lost), before, chain, 5, finals)
    # The record says what it knows of
    check_last_output(found(5, 4, 4, cursors=lost), record(4, 9), chain, 5, finals)
    check_last_output(found(5, 4, None, cursors={}), before, chain, 5, finals)  # another place


def test_two_that_have_gone_on_from_one_past_are_kept_apart() -> None:
    other = replace(record(4), ends={ONE: Ended(name(4), 77, 10)})
    with pytest.raises(
        CheckpointMismatch, match="tell different ends of epoch 4, first of node 2, instance 0"
    ):
        reconcile(found(4, 4, 4, ours=other))
    with pytest.raises(
        CheckpointMismatch, match="the checkpoint is of query p, the record of sink node 3 of q"
    ):
        reconcile(found(4, 4, 4, ours=replace(record(4), query="p")))


OTHER_SINK = Origin(5, 0)


def of_two_sinks(epoch: int, number: int = 10) -> CommitRecord:
    return replace(record(epoch), cursors={SINK: {130: number}, OTHER_SINK: {130: number}})


@pytest.mark.parametrize("behind", [SINK.node, OTHER_SINK.node])
def test_the_newest_record_of_any_sink_counts(behind: int) -> None:
    """The driver died, or a sink was away, when some had the record of the commit."""
    records = {SINK.node: record(5), OTHER_SINK.node: record(5)} | {behind: record(4)}
    course = reconcile(found(5, 4, 5, records=records))
    assert (course.committed, course.newest) == (5, record(5))
    assert reconcile(found(5, 4, 5, records={behind: record(5)})).newest == record(5)
    older: Mapping[Origin, list[str]] = {ONE: [name(epoch) for epoch in range(3)]}
    with pytest.raises(CheckpointMismatch, match="the sink has seen the commit of epoch 5"):
        reconcile(found(2, 2, 5, records=records, snapshots=older))


def test_a_sink_in_the_place_of_another_one_begins_anew_beside_those_that_stay() -> None:
    here = {SINK.node: of_two_sinks(4)}
    course = reconcile(found(4, 4, 4, ours=of_two_sinks(4), records=here, cursors={SINK: {130: 10}}))
    assert course.committed == 4
    for cursors in ({SINK: {130: 10}, OTHER_SINK: {130: 7}}, {OTHER_SINK: {130: 10}}):
        with pytest.raises(CheckpointMismatch, match="the sink has lost output"):
            reconcile(found(4, 4, 4, ours=of_two_sinks(4), records=here, cursors=cursors))


def test_a_sink_in_the_place_of_another_sink_of_the_query_begins_anew() -> None:
    """Its record is there, but not for this sink."""
    records = {node: of_two_sinks(4).kept_for(SINK.node, None) for node in (SINK.node, OTHER_SINK.node)}
    more = {"ours": of_two_sinks(4), "records": records, "cursors": {SINK: {130: 10}}}
    newest = reconcile(found(4, 4, 4, **more)).newest
    assert newest is not None and newest.cursors == {SINK: {130: 10}}
    shared = {node: each.kept_for(OTHER_SINK.node, each) for node, each in records.items()}
    with pytest.raises(CheckpointMismatch, match="the sink has lost output"):
        reconcile(found(4, 4, 4, **more | {"records": shared}))


@pytest.mark.parametrize("checkpoint_record_is_there", [True, False])
def test_a_start_over_another_place_may_die_when_it_has_settled(checkpoint_record_is_there: bool) -> None:
    """What it recorded asks the new place for nothing that was shown in the old one."""
    moved = {SINK.node: of_two_sinks(4).kept_for(SINK.node, None)}
    cursors = {SINK: {130: 10}}
    first = reconcile(found(4, 4, 4, ours=of_two_sinks(4), records=moved, cursors=cursors)).newest
    assert first is not None
    settled = replace(first, generation=2)
    for told in ([OTHER_SINK.node], [SINK.node, OTHER_SINK.node], []):
        records = moved | {node: settled.kept_for(node, None) for node in told}
        ours = settled if checkpoint_record_is_there else None
        course = reconcile(found(4, 4, 4, ours=ours, records=records, cursors=cursors))
        assert course.newest is not None and OTHER_SINK not in course.newest.cursors


def test_two_sinks_that_tell_different_ends_are_kept_apart() -> None:
    other = replace(record(5), ends={ONE: Ended(name(5), 77, 10)})
    with pytest.raises(
        CheckpointMismatch, match="sink node 3 and sink node 5 tell different ends of epoch 5"
    ):
        reconcile(found(5, 4, 5, records={SINK.node: record(5), OTHER_SINK.node: other}))


def test_a_record_that_steps_back_is_not_written() -> None:
    record(5).check_follows(None)
    record(5).check_follows(record(4))
    with pytest.raises(
        SnapshotCorrupt, match=r"instance 0 had ended an earlier epoch with .* newest snapshot is none"
    ):
        replace(record(5), ends={}).check_follows(record(4))
    with pytest.raises(SnapshotCorrupt):
        record(3).check_follows(record(4))


LINE = RecoveryLine(2, 5, truncation_points={ONE: 100})


def test_nothing_begins_before_the_last_commit() -> None:
    where = Where("op", 0, 5)
    LINE.check_beginning(ONE, 100, where)
    LINE.check_beginning(TWO, None, where)
    for offset, says in ((None, "no snapshot is there"), (99, "the newest snapshot is at offset 99")):
        with pytest.raises(SnapshotCorrupt, match=f"ended epoch 4 at offset 100 of its log, and {says}"):
            LINE.check_beginning(ONE, offset, where)


def test_no_epoch_is_run_again_that_had_committed() -> None:
    LINE.check_epoch(5, Where())
    with pytest.raises(CheckpointMismatch, match="runs epoch 4 again, but epoch 4 had committed"):
        LINE.check_epoch(4, Where())


def test_an_instance_that_others_have_rows_of_has_run() -> None:
    """A snapshot that is not there is no proof that there was none."""
    both, first = Origin(2, 0), Origin(3, 0)
    mine = {both.channel: 5}
    all_there = {both: {1: 9}, Origin(2, 1): {1: 9}, first: mine}

    def check(ends: Any, *, realtime: bool = False, epoch: int = 3) -> None:
        check_no_end_is_missing(CHAIN, ends, epoch=epoch, realtime=realtime)

    check(all_there, realtime=True)
    check({both: {1: 9}, first: mine})  # in micro-batch, one that no other has rows of may never have run
    check({})
    check({}, realtime=True, epoch=-1)
    with pytest.raises(
        SnapshotCorrupt, match=r"node 2, instance 1 has run .* all instances run in real time"
    ):
        check({both: {1: 9}, first: mine}, realtime=True)
    with pytest.raises(
        SnapshotCorrupt, match=r"node 2, instance 0 has run .* node 3, instance 0 has its rows"
    ):
        check({first: mine})


def test_the_log_says_which_epochs_an_instance_has_run() -> None:
    """In micro-batch, before the first commit record, no other instance need know that one before a sink has run."""
    entries = bytearray()
    codec.append_boundary(entries, 4, 1)
    log = codec.seal(entries)
    check_log_has_no_earlier_epoch(b"", epoch=5, where=Where("ledger", 0, 5))
    check_log_has_no_earlier_epoch(log, epoch=4, where=Where("ledger", 0, 4))
    with pytest.raises(SnapshotCorrupt, match=r"has run epoch 4, as its log says.*after epoch 4"):
        check_log_has_no_earlier_epoch(log, epoch=5, where=Where("ledger", 0, 5))
