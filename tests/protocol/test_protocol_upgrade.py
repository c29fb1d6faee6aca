"""From which epoch on a changed program runs, who repeats what was begun, and that nothing is migrated twice."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from harness import ORIGIN, Bench, Program
from test_protocol_binding import KEPT, OUT, QUERY, with_node

from clonos.errors import CheckpointMismatch
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.topology import Column, StateVariable, Topology
from clonos.protocol.versions.programs import Programs
from clonos.protocol.versions.state_evolution import Fields
from clonos.protocol.versions.upgrade import (
    History,
    LastCommit,
    OpenEpoch,
    Remains,
    Schedule,
    another_query,
    open_epoch,
    take_over,
)

SECOND = with_node(2, version="2")
WITH_FIRST = with_node(2, version="2", previous=frozenset({"1"}))


def clean(number: int) -> OpenEpoch:
    return OpenEpoch(number, begun=False, seen=number - 1)


def seen(number: int, ahead: int = 0) -> OpenEpoch:
    return OpenEpoch(number, begun=True, seen=number + ahead)


def boundary(epoch: int, program: str = "") -> bytes:
    entries = bytearray()
    codec.append_boundary(entries, epoch, 7, program)
    return codec.seal(entries)


def step() -> bytes:
    entries = bytearray()
    codec.append_order(entries, [(1, 1)])
    codec.append_sent(entries, 0, 0)
    return codec.seal(entries)


# ------------------------------------------------------------------ when it takes over


def test_the_same_program_goes_on() -> None:
    upgrade = take_over(History.of(QUERY), QUERY, seen(5))
    assert (upgrade.history, upgrade.later, upgrade.drops) == (History.of(QUERY), (), False)


def test_a_new_version_takes_over_with_the_first_epoch_that_has_not_begun() -> None:
    upgrade = take_over(History.of(QUERY), SECOND, clean(5))
    assert upgrade.history.schedule(2).entries == ((0, "1"), (5, "2"))
    assert not upgrade.drops
    assert upgrade.history.at(4) == QUERY
    assert upgrade.history.at(5).node(2).version == "2"


def test_an_open_epoch_of_which_nothing_was_seen_is_dropped() -> None:
    upgrade = take_over(History.of(QUERY), SECOND, OpenEpoch(5, begun=True, seen=4))
    assert upgrade.drops
    assert upgrade.history.schedule(2).entries == ((0, "1"), (5, "2"))


def test_an_epoch_that_was_seen_is_repeated_by_the_version_that_began_it() -> None:
    assert take_over(History.of(QUERY), WITH_FIRST, seen(5)).history.schedule(2).at(5) == "1"
    upgrade = take_over(History.of(QUERY), WITH_FIRST, seen(5, ahead=1))
    assert upgrade.history.schedule(2).entries == ((0, "1"), (7, "2"))
    assert not upgrade.drops


def test_without_that_version_the_start_is_refused_with_both_ways_out() -> None:
    with pytest.raises(CheckpointMismatch) as refused:
        take_over(History.of(QUERY), SECOND, seen(5))
    text = str(refused.value)
    assert "epoch 5 was begun by the program before" in text
    assert "version '1' of 'totals' has to repeat it" in text
    assert "Give the old function as previous={'1': function}" in text
    assert (
        "start the old program once until the epoch has committed, with .trigger(availableNow=True) if"
        in text
    )


def test_columns_settings_and_time_wait_for_the_end_of_an_epoch_that_was_seen() -> None:
    for program in (
        with_node(3, WITH_FIRST, columns=(*OUT, Column("n", "int"))),
        replace(WITH_FIRST, settings={"spark.sql.ansi.enabled": "false"}),
        with_node(2, WITH_FIRST, watermark=("at", 5)),
    ):
        with pytest.raises(CheckpointMismatch, match=r"only when that epoch is over.*availableNow"):
            take_over(History.of(QUERY), program, seen(5))
        assert take_over(History.of(QUERY), program, clean(5)).since == 5


def test_interception_waits_for_the_end_of_an_epoch_that_was_seen() -> None:
    """What a checkpoint of before says nothing of is off."""
    bound = QUERY.settings or {}
    off, on = QUERY, replace(QUERY, settings={**bound, "spark.clonos.intercept": "true"})
    for before, after in ((off, on), (on, off)):
        with pytest.raises(
            CheckpointMismatch, match=r"spark.clonos.intercept .*only when that epoch is over"
        ):
            take_over(History.of(before), after, seen(5))
        upgrade = take_over(History.of(before), after, clean(5))
        assert [upgrade.history.at(epoch).settings for epoch in (4, 5)] == [before.settings, after.settings]


def test_what_a_call_covers_changes_only_where_no_epoch_is_open_that_was_begun_otherwise() -> None:
    """Also with the function of the version before: it belongs to the operator, not to a version."""
    for program in (with_node(2, per="bundle"), with_node(2, WITH_FIRST, per="bundle")):
        for ahead in (0, 1):
            with pytest.raises(
                CheckpointMismatch, match=r"epoch 5 .*only when that epoch is over"
            ) as refused:
                take_over(History.of(QUERY), program, seen(5, ahead))
            assert "per of node 2 ('totals') was 'batch' and is 'bundle' now" in str(refused.value)
            assert (
                "Start the old program once until the epoch has committed, with .trigger(availableNow=True) if"
                in str(refused.value)
            )
        upgrade = take_over(History.of(QUERY), program, clean(5))
        assert [upgrade.history.at(epoch).node(2).per for epoch in (4, 5)] == ["batch", "bundle"]
        assert take_over(History.of(QUERY), program, OpenEpoch(5, begun=True, seen=4)).drops
        # Back again, from there: what is bound is that of the open epoch.
        assert take_over(upgrade.history, QUERY, clean(5)).history.at(5).node(2).per == "batch"
        with pytest.raises(CheckpointMismatch, match="was 'bundle' and is 'batch' now"):
            take_over(upgrade.history, QUERY, seen(5))


def test_what_a_call_covers_is_taken_from_the_first_start_that_says_it() -> None:
    older = History.of(with_node(2, per=None))
    bound = take_over(older, QUERY, seen(5)).history
    assert bound.at(5).node(2).per == "batch"
    said = older.to_document()
    for node in said[0]["program"]["nodes"]:
        del node["per"]
    assert History.from_document(said) == older


def test_what_keys_begin_with_may_be_left_out_and_not_be_brought_later() -> None:
    """It is read once: other rows are no difference that could be seen here, other columns are."""
    some, others = (Column("opening", "int32"),), (Column("opening", "int64"),)
    begun = with_node(2, initial_state=some)
    assert History.from_document(History.of(begun).to_document()) == History.of(begun)
    for bound, program, says in (
        (QUERY, begun, r"initialState of node 2 \('totals'\) is new: keys have begun without it"),
        (begun, with_node(2, initial_state=others), "has other columns: it was read with"),
    ):
        with pytest.raises(CheckpointMismatch, match=says):
            take_over(History.of(bound), program, clean(5))
    with pytest.raises(CheckpointMismatch, match="only when that epoch is over"):
        take_over(History.of(begun), QUERY, seen(5))
    without = take_over(History.of(begun), QUERY, clean(5))
    assert [without.history.at(epoch).node(2).initial_state for epoch in (4, 5)] == [some, ()]


def test_changed_state_comes_with_the_function_that_changes() -> None:
    more = (replace(KEPT, columns=(*KEPT.columns, Column("max", "double"))),)
    assert take_over(History.of(QUERY), with_node(2, WITH_FIRST, state=more), seen(5)).since == 6
    with pytest.raises(CheckpointMismatch, match="needs a new version"):
        take_over(History.of(QUERY), with_node(2, state=more), seen(5))


def test_a_program_that_was_to_take_over_and_did_not_is_replaced() -> None:
    history = take_over(History.of(QUERY), WITH_FIRST, seen(5)).history
    assert take_over(history, QUERY, seen(5)).history == History.of(QUERY)
    third = with_node(2, version="3", previous=frozenset({"1"}))
    assert take_over(history, third, seen(5)).history.schedule(2).entries == ((0, "1"), (6, "3"))


def test_back_to_the_old_program_what_the_new_one_has_begun_is_dropped() -> None:
    """Nothing of it was seen. Nor may the old program go on from what the new one has left inside the epoch."""
    history = take_over(History.of(QUERY), SECOND, clean(5)).history
    back = take_over(history, QUERY, OpenEpoch(5, begun=True, seen=4))
    assert back.drops
    assert back.history.schedule(2).entries == ((0, "1"),)
    assert back.history.changes_at(5)


def test_a_program_that_never_ran_does_not_hinder_the_next_one() -> None:
    """A program with more columns and migrated state was started, and none of its epochs has begun."""
    state = (replace(KEPT, columns=KEPT.columns[:1]),)
    more = with_node(2, SECOND, columns=(*OUT, Column("n", "int")), state=state, migrates=frozenset({""}))
    history = take_over(History.of(QUERY), more, clean(5)).history
    assert another_query(history, QUERY) is None
    assert take_over(history, QUERY, clean(5)).history == History.of(QUERY)
    with pytest.raises(CheckpointMismatch, match="lacks 'n'"):
        take_over(history, QUERY, clean(6))
    assert "lacks 'total'" in str(another_query(history, with_node(2, columns=OUT[:1])))


def variables(*declared: StateVariable, version: str) -> Topology:
    return with_node(2, version=version, state=declared)


CENTS = StateVariable("x", "value", (Column("cents", "bigint"),))
OTHER = StateVariable("other", "value", (Column("n", "int"),))


def without_x() -> History:
    """Version 1 keeps x, version 2 from epoch 5 on does not, and never runs under a third one."""
    history = take_over(
        History.of(variables(CENTS, version="1")), variables(OTHER, version="2"), clean(5)
    ).history
    return take_over(history, variables(OTHER, version="3"), clean(7)).history


def test_a_new_query_has_left_no_state_variable() -> None:
    history = History.of(variables(CENTS, version="1"))
    assert take_over(history, variables(CENTS, version="1"), clean(0)).changes == ()


def test_a_state_variable_that_is_used_again_is_as_it_was() -> None:
    changes = take_over(without_x(), variables(CENTS, OTHER, version="4"), clean(9)).changes
    assert (
        "state variable 'x' of node 2 ('totals') is used again, with what it kept when it was last used"
        in map(str, changes)
    )


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (replace(CENTS, columns=(Column("euros", "double"),)), "lacks 'cents'"),
        (replace(CENTS, kind="list"), "has another kind"),
        (replace(CENTS, ttl=1), "has a time to live now"),
    ],
)
def test_a_state_variable_that_is_used_again_for_something_else_is_refused(
    declared: StateVariable, why: str
) -> None:
    """What it kept would be taken for what it is not: columns are read by their place."""
    program = with_node(2, version="4", state=(declared, OTHER), migrates=frozenset({"x"}))
    with pytest.raises(
        CheckpointMismatch, match=f"{why}.*declare it as it was then, or give .* another name"
    ):
        take_over(without_x(), program, clean(9))
    take_over(without_x(), with_node(2, program, state=(replace(declared, name="y"), OTHER)), clean(9))


def test_rolling_back_is_another_change_of_version() -> None:
    history = take_over(History.of(QUERY), SECOND, clean(5)).history
    back = take_over(history, QUERY, clean(9)).history
    assert back.schedule(2).entries == ((0, "1"), (5, "2"), (9, "1"))
    assert back.schedule(2).first == "1"


def test_a_restart_still_needs_the_version_that_began_the_open_epoch() -> None:
    history = take_over(History.of(QUERY), WITH_FIRST, seen(5)).history
    again = take_over(history, WITH_FIRST, seen(5)).history
    assert again.schedule(2).entries == history.schedule(2).entries
    with pytest.raises(CheckpointMismatch, match="version '1' of 'totals' has to repeat it"):
        take_over(history, SECOND, seen(5))
    assert take_over(history, SECOND, clean(6)).history.schedule(2).at(6) == "2"


def test_everything_that_stands_against_it_is_said_at_once() -> None:
    with pytest.raises(CheckpointMismatch) as refused:
        take_over(History.of(QUERY), with_node(2, replace(QUERY, zone="UTC"), parallelism=5), clean(5))
    assert "the session time zone" in str(refused.value)
    assert "parallelism of node 2" in str(refused.value)


def test_a_source_at_another_place_is_taken_when_the_user_says_that_it_is_the_same() -> None:
    here = with_node(1, source={"kind": "clonos", "path": "/a"})
    there = with_node(1, source={"kind": "clonos", "path": "/b"})
    with pytest.raises(CheckpointMismatch, match=r'\.option\("clonos.sameSource", "true"\)'):
        take_over(History.of(here), there, seen(5))
    assert take_over(History.of(here), there, seen(5), same_source=True).history.at(Epoch(5)) == there


def test_what_an_older_format_did_not_say_is_bound_from_now_on() -> None:
    silent = replace(QUERY, zone=None, settings=None, realtime=None)
    assert take_over(History.of(silent), QUERY, seen(5)).history.at(Epoch(5)) == QUERY


def test_a_program_is_the_same_to_a_line_while_its_epochs_do_the_same() -> None:
    """What instances that go back together did in an open epoch counts if it is: else what was seen of it would lie
    behind where they begin, and the start be refused."""
    first = take_over(History.of(QUERY), SECOND, clean(5)).history
    brings = with_node(2, SECOND, migrates=frozenset({""}))
    beside = with_node(2, brings, previous=frozenset({"1"}), previous_migrates=frozenset({("1", "")}))
    for again in (SECOND, brings, beside, replace(beside, realtime=True), brings):
        upgrade = take_over(first, again, seen(5, ahead=1))
        assert not upgrade.later and upgrade.history.digests() == first.digests(), again
        first = History.from_document(upgrade.history.to_document())
    another = take_over(first, with_node(2, SECOND, version="3"), clean(5)).history
    assert another.digests()[0] == first.digests()[0] and another.digests()[5] != first.digests()[5]


def test_another_program_may_begin_the_first_epoch() -> None:
    upgrade = take_over(History.of(QUERY), SECOND, clean(0))
    assert upgrade.history == History.of(SECOND), "it is another to a line"


def test_a_history_that_says_no_digests_has_those_of_its_programs() -> None:
    history = take_over(History.of(QUERY), SECOND, clean(5)).history
    older = [{"since": one["since"], "program": one["program"]} for one in history.to_document()]
    assert History.from_document(older) == history


def test_a_history_comes_back_as_it_was() -> None:
    history = take_over(History.of(QUERY), SECOND, clean(5)).history
    assert History.from_document(history.to_document()) == history


# ----------------------------------------------------------------------- what was seen

ENDS = {ORIGIN: LastCommit(len(boundary(4)), 10)}
START = ENDS[ORIGIN].log_offset


def look(
    *pieces: tuple[int, bytes],
    whole: bool = True,
    shown: int = 10,
    deltas: tuple[bytes, ...] = (),
    **kwargs: Any,
) -> OpenEpoch:
    remains = Remains(ENDS, [(ORIGIN, piece) for piece in pieces], deltas, {ORIGIN.channel: shown}, whole)
    return open_epoch(5, remains, **{"realtime": False, "planned": True, **kwargs})


def test_nothing_behind_the_last_commit_is_nothing_seen() -> None:
    assert look((0, boundary(4))) == OpenEpoch(5, False, 4)


def test_that_an_epoch_began_does_not_count_as_seen() -> None:
    assert look((0, boundary(4) + boundary(5))) == OpenEpoch(5, True, 4)
    assert look((START, boundary(5))) == OpenEpoch(5, True, 4)


def test_every_recorded_step_counts_as_seen() -> None:
    assert look((START, boundary(5) + step())).seen == 5
    assert look((START + len(boundary(5)), step())).seen == 5, "in any store"
    assert look((START, b"rubbish")).seen == 5, "also what cannot be read"


def test_what_others_were_sent_counts_as_seen() -> None:
    for data in (boundary(5) + step(), None):
        end = START + len(boundary(5) + step())
        entry = encode_entry(ORIGIN, START, end - START, 1, data)
        assert look(deltas=(encode_delta([entry]),)).seen == 5
    known = encode_delta([encode_entry(ORIGIN, 0, START, 1, None)])
    assert look(deltas=(known,)) == OpenEpoch(5, False, 4)


def test_output_behind_the_commit_counts_as_seen() -> None:
    assert look(shown=11).seen == 5


def test_in_real_time_the_next_epoch_may_have_been_seen_too() -> None:
    for realtime in (True, None):
        assert look((START, step()), realtime=realtime).seen == 6


def test_where_not_every_holder_can_be_asked_only_an_epoch_not_planned_is_unseen() -> None:
    assert look(whole=False).seen == 5
    assert look(whole=False, planned=False) == OpenEpoch(5, True, 4), (
        "it goes: the checkpoint may be an older copy"
    )
    assert look((START, boundary(5) + step()), whole=False, planned=False).seen == 5
    assert look(shown=11, whole=False, planned=False).seen == 5
    assert look(whole=False, planned=False, realtime=True).seen == 6


# ---------------------------------------------------------- what was brought up to date

MIGRATES = frozenset({""})
MIGRATED = take_over(History.of(QUERY), with_node(2, version="2", migrates=MIGRATES), clean(5)).history
ROLLED_BACK = with_node(2, previous=frozenset({"2"}))


def test_what_a_version_brings_up_to_date_is_written_down() -> None:
    known = History.from_document(MIGRATED.to_document())
    assert known.schedule(2).migrates == {"1": frozenset(), "2": MIGRATES}
    again = take_over(MIGRATED, with_node(2, version="2"), clean(7)).history
    assert again.schedule(2).migrates["2"] == MIGRATES, "a program that is started later may lack it"
    never_ran = take_over(MIGRATED, with_node(2, version="2"), clean(5)).history
    assert never_ran.schedule(2).migrates["2"] == frozenset()


@pytest.mark.parametrize("program", [ROLLED_BACK, with_node(2, version="2")])
def test_the_first_epoch_of_a_version_is_repeated_with_what_it_brings_up_to_date(program: Topology) -> None:
    with pytest.raises(
        CheckpointMismatch, match=r"version '2' of 'totals' has brought .* epoch 5 was begun by it"
    ):
        take_over(MIGRATED, program, seen(5))
    node = program.node(2)
    brought = {"previous_migrates": frozenset({("2", "")})} if node.previous else {"migrates": MIGRATES}
    whole = with_node(2, version=node.version, previous=node.previous, **brought)
    assert take_over(MIGRATED, whole, seen(5)).history.schedule(2).at(5) == "2"
    assert take_over(MIGRATED, program, seen(6)).history.schedule(2).at(6) == "2"


# ------------------------------------------------------------------------ the instance


class Tally(Program):
    """Counts under a version; the second one keeps its count elsewhere, and says when it was migrated."""

    form = "process"
    record_at_a_time = True
    per_epoch = False
    migrates = frozenset({""})

    def __init__(self, bench: Bench, version: str) -> None:
        super().__init__(bench)
        self._version = version

    def bundle(self, keys: list[Any], rows: list[Any]) -> list[Any]:
        kept = self._services.state.setdefault("tally", {"n": 0, "by": [self._version]})
        assert kept["by"][-1] == self._version, "state of another version"
        made = []
        for key, number, _ in rows:
            kept["n"] += 1
            made.append((key, number, (self._version, kept["n"], self._services.random.random())))
        return made

    def migrate(self, before: str, moved: Mapping[str, Fields]) -> None:
        kept = self._services.state.get("tally")
        if kept is not None:
            kept["by"].append(self._version)

    def close(self) -> None:
        """Nothing is held."""


def bench(versions: str, schedule: Schedule) -> Bench:
    """With the functions of these versions, the last one its own."""

    def programs(bench: Bench) -> Programs:
        make = {each: partial(Tally, bench, each) for each in versions}
        return Programs("op", schedule, versions[-1], make)

    return Bench(random.Random(1), programs=programs)


SWITCH = Schedule(((0, "1"), (1, "2")))


def records(start: int, count: int) -> list[tuple[int, int, Any]]:
    return [(1, at, ("k", at, ())) for at in range(start, start + count)]


def test_a_version_takes_over_at_the_boundary_and_the_log_says_so() -> None:
    it = bench("12", SWITCH)
    it.open(0)
    it.take(records(0, 2))
    assert it.instance.snapshot().program == ""
    it.open(1)
    it.take(records(2, 2))
    assert [row[2][:2] for row in it.rows] == [("1", 1), ("1", 2), ("2", 3), ("2", 4)]
    assert it.services.state["tally"]["by"] == ["1", "2"]
    boundaries = [each for each in codec.decode_steps(it.log, 0) if each.epoch >= 0]
    assert [each.program for each in boundaries] == ["", "2"]
    assert it.instance.snapshot().program == "2"


def test_a_replay_from_before_the_boundary_does_the_same() -> None:
    it = bench("12", SWITCH)
    it.open(0)
    it.take(records(0, 2))
    it.open(1)
    it.take(records(2, 2))
    again = bench("12", SWITCH)
    again.restore(it.log)
    again.open(1)
    again.take(records(0, 4))
    assert again.rows == it.rows
    assert again.log == it.log
    assert again.services.state["tally"]["by"] == ["1", "2"], "migrated once"


def test_a_replay_goes_by_the_log_and_not_by_the_schedule() -> None:
    it = bench("1", Schedule(((0, "1"),)))
    it.open(0)
    it.take(records(0, 2))
    again = bench("12", Schedule(((-1, "1"), (0, "2"))))
    again.restore(it.log)
    again.open(0)
    again.take(records(0, 2))
    assert again.rows == it.rows


def test_state_of_a_snapshot_behind_the_boundary_is_not_migrated_again() -> None:
    it = bench("12", SWITCH)
    it.open(0)
    it.open(1)
    it.take(records(0, 2))
    snapshot = it.instance.snapshot()
    again = bench("12", SWITCH)
    again.services.state.update(it.services.state)
    again.saved = list(it.saved)
    again.restore(b"", snapshot)
    again.open(1)
    again.take(records(2, 1))
    assert again.rows[-1][2][:2] == ("2", 3)
    assert again.services.state["tally"]["by"] == ["2"]


def test_what_was_recorded_under_a_version_that_is_not_there_is_refused() -> None:
    it = bench("1", Schedule(((0, "1"),)))
    it.open(0)
    it.take(records(0, 2))
    again = bench("2", SWITCH)
    again.restore(it.log)
    with pytest.raises(CheckpointMismatch, match=r"previous=\{'1': function\}.*availableNow"):
        again.open(0)


def test_state_of_a_version_that_is_not_there_is_migrated_by_the_one_that_is() -> None:
    it = bench("1", Schedule(((0, "1"),)))
    it.open(0)
    it.take(records(0, 2))
    again = bench("2", SWITCH)
    again.services.state.update(it.services.state)
    again.saved = list(it.saved)
    again.restore(b"", it.instance.snapshot())
    again.open(1)
    again.take(records(2, 1))
    assert again.rows[-1][2][:2] == ("2", 3)


def test_an_instance_that_has_not_run_since_needs_what_brings_its_state_up_to_date() -> None:
    it = bench("1", Schedule(((0, "1"),)))
    it.open(0)
    it.take(records(0, 2))
    again = bench("2", replace(SWITCH, migrates={"2": frozenset({"", "another"})}))
    again.services.state.update(it.services.state)
    again.saved = list(it.saved)
    again.restore(b"", it.instance.snapshot())
    with pytest.raises(
        CheckpointMismatch, match=r"that version '1' has written.*\(function, on_timer, migrate\)"
    ):
        again.open(1)


def test_a_function_that_is_the_only_one_is_opened_at_once() -> None:
    opened: list[str] = []

    class Opening(Tally):
        def open(self, services: CausalServices) -> None:
            opened.append(self._version)
            super().open(services)

    def programs(bench: Bench) -> Programs:
        return Programs("op", Schedule(((0, "1"),)), "1", {"1": partial(Opening, bench, "1")})

    Bench(random.Random(1), programs=programs)
    assert opened == ["1"]


def test_channels_of_nodes_that_are_no_operators_show_nothing() -> None:
    remains = Remains({}, [], [], {Origin(7, 0).channel: 0}, True)
    assert not open_epoch(0, remains, realtime=True, planned=False).begun
