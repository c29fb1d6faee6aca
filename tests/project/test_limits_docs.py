"""What the documentation says is shown by a test: every limit, and every test that a page names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

OUTSIDE = "shown by no test: it is a promise of what Clonos stands on"

# By how a line begins: the tests that show it, as `file::test`, or why none can.
LIMITS: dict[str, str] = {
    "Channels are FIFO": """
        spark/test_spark_refusals.py::test_positions_that_step_back_end_the_query
        protocol/test_protocol_rules.py::test_arrivals_strictly_increase_on_every_channel""",
    "A source gives the same records": """
        protocol/test_protocol_identity.py::test_what_the_epochs_before_brought_does_not_come_again
        protocol/test_protocol_identity.py::test_an_attempt_that_resumes_drops_what_its_epoch_repeats_and_nothing_else
        protocol/test_protocol_identity.py::test_the_metadata_of_a_snapshot_keeps_it_and_that_of_older_ones_is_read""",
    "A channel that has a name": """
        protocol/test_protocol_identity.py::test_names_are_numbered_densely_by_node_and_never_anew
        protocol/test_protocol_counters.py::test_the_last_name_has_the_last_channel_number""",
    "Of a Kafka source": """
        e2e/test_kafka_source.py::test_records_that_retention_has_passed_are_told_and_the_hint_is_a_way_on
        e2e/test_kafka_source.py::test_a_topic_that_was_made_anew_is_told""",
    "Checkpoint storage is durable": """
        e2e/test_lost_commits.py::test_a_commit_that_spark_has_lost_is_written_again
        e2e/test_lost_commits.py::test_a_snapshot_that_a_commit_needs_is_missed
        storage/test_storage_objects.py::test_of_claims_at_once_one_is_taken""",
    "What stands before `causal()`": """
        spark/test_spark_before_causal.py::test_what_is_not_the_same_at_each_reading_is_refused
        spark/test_spark_before_causal.py::test_every_refusal_is_tried""",
    "User functions are deterministic": """
        e2e/test_functions.py::test_unrecorded_outcomes_are_found_out
        protocol/test_protocol_replay.py::test_output_that_depends_on_what_is_not_recorded_is_noticed
        protocol/test_protocol_replay.py::test_neither_state_nor_the_arguments_of_a_call_are_compared""",
    "Of a function that is repeated": """
        spark/test_spark_archive_code.py::test_another_constant_or_another_modules_function_is_found_out
        spark/test_spark_archive_code.py::test_what_no_code_shows_is_found_in_the_state
        operators/test_operators_function_code.py::test_installed_packages_are_not_looked_at_but_for_the_functions_own
        operators/test_operators_function_code.py::test_what_is_not_followed_is_not_found_out""",
    "With `spark.clonos.intercept`": """
        operators/test_operators_intercept.py::test_draws_are_repeated
        operators/test_operators_intercept.py::test_what_reaches_the_world_in_another_way_is_found_out
        operators/test_operators_intercept.py::test_other_threads_get_the_real_clock""",
    "What `clonos classify` says": """
        testing/test_classification.py::test_what_no_record_shows_is_not_found""",
    "`ctx` is used by the thread": """
        operators/test_operators_threads.py::test_a_service_is_refused_in_another_thread
        operators/test_operators_threads.py::test_what_is_not_checked_for_each_record""",
    "An *effect*": """
        protocol/test_protocol_replay.py::test_effect_whose_outcome_is_lost_takes_place_again_under_its_key""",
    "A record that kills every process": """
        e2e/test_functions.py::test_a_record_that_ends_every_process_is_named
        e2e/test_functions.py::test_a_record_that_ends_every_process_is_passed_over_and_kept""",
    "Where steps are not repeated": """
        protocol/test_protocol_rollback_line.py::test_what_is_visible_behind_the_line_is_never_made_again
        protocol/test_protocol_held_output.py::test_rows_are_seen_with_their_round
        protocol/test_protocol_alignment.py::test_a_marked_channel_is_held_until_all_are_marked""",
    "Without standbys a lost replica": """
        e2e/test_faults.py::test_exact_through
        e2e/test_standby.py::test_a_standby_takes_over
        e2e/test_standby.py::test_a_passive_standby_takes_over
        e2e/test_effects.py::test_a_primary_dies_behind_an_effect""",
    "On a cluster, operators": """
        spark_plugin/test_executor_services.py::test_a_query_without_standbys_has_none_on_executors
        e2e/test_cluster.py::test_a_query_on_two_hosts_survives_a_replica_and_an_executor""",
    "A micro-batch that is run again": """
        protocol/test_protocol_line.py::test_without_a_cursor_nothing_is_guessed
        protocol/test_protocol_line.py::test_an_epoch_does_not_end_before_what_it_was_resumed_from
        e2e/test_resume.py::test_a_failed_query_goes_on_inside_the_epoch""",
    "Restoring takes as long": """
        storage/test_storage_snapshots.py::test_on_one_device_tables_are_shared_and_never_copied
        storage/test_storage_snapshots.py::test_of_the_next_snapshot_only_new_tables_are_fetched
        storage/test_storage_snapshots.py::test_without_hard_links_files_are_copied""",
    "A host that loses power": """
        storage/test_power_failure.py::test_zeros_at_the_end_hide_nothing
        storage/test_power_failure.py::test_a_fence_is_synced_before_it_counts
        sinks/test_sink_wal.py::test_the_names_of_new_directories_are_synced
        sinks/test_sink_wal.py::test_zeros_that_a_power_failure_left_are_mended""",
    "The data directory survives": """
        e2e/test_holders.py::test_downstream_hands_back_one_operators_logs
        e2e/test_holders.py::test_the_sinks_log_alone_is_enough
        e2e/test_holders.py::test_more_losses_than_the_depth_covers_stop_the_query""",
    "An instance whose host is lost": """
        sim/test_sim_hosts.py::test_queries_outlive_hosts
        sim/test_sim_hosts.py::test_the_end_of_an_epoch_is_not_lost_with_its_host
        sim/test_sim_hosts.py::test_what_was_lost_of_others_logs_is_asked_for
        sim/test_sim_hosts.py::test_no_instance_goes_on_from_a_snapshot_that_depends_on_lost_logs""",
    "In micro-batch, an instance of which": """
        sim/test_sim_losses.py::test_an_instance_of_which_everything_is_gone_is_taken_for_new""",
    "Logs that were lost": """
        protocol/test_protocol_retrieval.py::test_what_lies_before_the_settled_epochs_may_have_been_done_anew""",
    "Two log stores lost": """
        sim/test_sim_losses.py::test_a_copied_log_with_effects_is_not_done_anew_and_stops_where_its_input_is_lost
        protocol/test_protocol_needed_log.py::test_nothing_is_where_something_is_damaged_that_may_depend_on_it""",
    "A damaged page of a sink's log": """
        standby/test_standby_unreadable.py::test_damage_matters_to_whom_something_out_in_the_world_may_depend_on""",
    "With sharing depth `full`": """
        sim/test_sim_scale.py::test_wire_grows_with_parallelism_and_with_depth_and_shrinks_with_sharing""",
    "Streams are joined by equal columns": """
        spark/test_spark_join.py::test_a_join_gives_what_sparks_own_gives
        spark/test_spark_table_join.py::test_each_row_meets_the_rows_that_sparks_own_join_gives_it
        spark/test_spark_refusals.py::test_names_are_given_once_and_a_union_has_a_stream_once
        spark/test_spark_refusals.py::test_two_outputs_of_one_operator_come_together_as_the_hint_says
        spark/test_spark_operators.py::test_two_sources_are_united
        spark/test_spark_dataflows.py::test_two_streams_with_schemas_of_their_own_are_connected
        testing/test_operator_driver.py::test_what_connected_streams_have_in_common""",
    "Sinks of one query": """
        spark/test_spark_dataflows.py::test_several_sinks_show_what_one_query_draws
        operators/test_operators_pyspark.py::test_functions_with_pysparks_signatures_have_no_side_outputs""",
    "A Delta sink writes": """
        sinks/test_delta_sink.py::test_what_does_not_fit_is_refused_when_the_query_is_defined
        sinks/test_delta_sink.py::test_what_is_needed_outlives_checkpoints_compaction_and_vacuum
        sinks/test_delta_sink.py::test_rows_that_a_restore_takes_away_are_not_missed""",
    "A sink in an object store": """
        sinks/test_object_sink.py::test_parts_that_were_compacted_do_not_come_back
        sinks/test_object_sink.py::test_a_reader_of_the_folder_sees_the_rows_and_nothing_else
        sinks/test_object_sink.py::test_a_stopped_writer_shows_nothing_of_its_own""",
    "An Iceberg sink is": """
        sinks/test_iceberg_sink.py::test_what_is_needed_outlives_snapshots_that_expire
        sinks/test_iceberg_sink.py::test_rows_that_a_rollback_takes_away_are_not_missed""",
    "Redis loses rows": """
        sinks/test_redis_sink.py::test_a_replica_that_lagged_and_took_over_is_told
        sinks/test_redis_sink.py::test_a_server_that_syncs_now_and_then_is_told_of""",
    'A SQL sink with `mode="upsert"`': """
        sinks/test_sink_upsert.py::test_of_several_instances_the_last_transaction_counts
        sinks/test_sink_upsert.py::test_the_statement_itself_does_not_take_an_older_output
        sinks/test_sink_upsert.py::test_after_a_deletion_an_older_row_may_come_again""",
    "A SQL sink in MySQL or MariaDB": OUTSIDE,
    "In Real-Time Mode all tasks of a query run at once": """
        spark/test_spark_layers.py::test_a_layer_has_the_instances_of_its_nodes_and_forwarders_for_later_ones""",
    "Keys are strings": """
        spark/test_spark_routing.py::test_every_allowed_key_type
        spark/test_spark_routing.py::test_other_types_are_no_keys""",
    "In Real-Time Mode timers": """
        spark/test_spark_time.py::test_a_processing_time_timer_fires_although_nothing_arrives_and_its_replica_died
        spark/test_spark_time.py::test_timers_wait_for_rows_where_spark_is_told_to_run_no_batch_without""",
    "The causal logs of the epochs": "sim/test_sim_scale.py::test_memory_holds_what_is_shared",
    "The watermark is the minimum": """
        protocol/test_protocol_channel_watermarks.py::test_in_real_time_a_channel_is_idle_that_is_silent_for_a_while
        protocol/test_protocol_channel_watermarks.py::test_in_micro_batch_the_slowest_channel_of_the_batch_counts
        operators/test_operators_pyspark.py::test_late_is_what_the_epoch_began_behind""",
    'With `per="batch"`': """
        operators/test_operators_pyspark.py::test_a_batch_is_one_call_per_key_in_their_order_when_the_epoch_ends
        spark/test_spark_parity.py::test_an_epoch_is_one_call_per_key_late_rows_are_dropped_and_timeouts_come_behind""",
    "Parallelism, keys, names": """
        protocol/test_protocol_binding.py::test_what_would_change_the_meaning_is_refused
        protocol/test_protocol_binding.py::test_another_session_time_zone_is_refused_with_the_setting
        spark/test_spark_upgrade.py::test_one_more_field_and_one_more_column
        spark/test_spark_upgrade.py::test_state_is_migrated_once
        protocol/test_protocol_replay.py::test_another_function_is_noticed_and_named""",
    "In real time an epoch": """
        protocol/test_protocol_upgrade.py::test_in_real_time_the_next_epoch_may_have_been_seen_too
        protocol/test_protocol_upgrade.py::test_what_was_recorded_under_a_version_that_is_not_there_is_refused""",
    "In micro-batch, a checkpoint that": """
        sim/test_sim_losses.py::test_an_epoch_that_an_older_checkpoint_has_forgotten_may_come_out_shorter""",
    "A checkpoint that was restored": """
        e2e/test_lost_commits.py::test_an_older_copy_of_the_checkpoint_is_refused_under_a_newer_sink
        protocol/test_protocol_commits.py::test_a_sink_that_lost_rows_is_refused_and_another_sink_is_not
        sinks/test_sink_target.py::test_another_table_under_the_same_checkpoint_is_refused
        sinks/test_sink_target.py::test_a_table_that_was_dropped_is_not_made_anew
        sinks/test_sink_target.py::test_a_table_that_was_made_anew_by_hand_is_taken_for_the_old_one""",
    "Spark's checkpoint cannot be fenced": OUTSIDE,
    "Spark Connect sessions": """
        spark/test_spark_refusals.py::test_only_a_streaming_dataframe_of_this_session
        spark/test_spark_refusals.py::test_a_session_without_the_plugin_or_with_speculation
        tools/test_command.py::test_another_spark_release_is_refused
        tools/test_command.py::test_an_earlier_release_has_one_mode
        spark/test_spark_refusals.py::test_real_time_takes_a_release_that_has_exchanges_in_it""",
    "Fault tolerance of the Spark driver": "e2e/test_driver.py::test_a_killed_driver_is_continued",
}
NAMED = re.compile(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)(?:::(test_\w+))?`")


def limits(root: Path) -> list[str]:
    """The lines of the list, each as one string."""
    text = (root / "docs" / "limits.md").read_text("utf-8")
    return [" ".join(line.split()) for line in re.findall(r"^- ((?:.+\n)(?:  .+\n)*)", text, re.M)]


def names_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def missing(root: Path, file: str, test: str) -> str | None:
    """What is wrong with a test that a text names; a file is named with or without its folder."""
    found = [path for path in (root / "tests").rglob("test_*.py") if path.as_posix().endswith(f"/{file}")]
    if len(found) != 1:
        return f"{file} is there {len(found)} times"
    return f"{file} has no {test}" if test and test not in names_in(found[0]) else None


def complaints(root: Path, said: dict[str, str], lines: list[str]) -> Iterator[str]:
    for line in lines:
        known = [begins for begins in said if line.startswith(begins)]
        if len(known) != 1:
            yield f"{len(known)} entries are for the line {line[:60]!r}"
    for begins, shown in said.items():
        if not any(line.startswith(begins) for line in lines):
            yield f"no line begins with {begins!r}"
        for named in shown.split() if "::" in shown else ():
            wrong = missing(root, *named.split("::"))
            if wrong is not None:
                yield f"{begins!r}: {wrong}"


def test_every_limit_is_shown_by_a_test_that_is_there(root: Path) -> None:
    found = list(complaints(root, LIMITS, limits(root)))
    assert not found, "\n".join(found)


def test_every_test_that_the_documentation_names_is_there(root: Path) -> None:
    found = [
        f"{page.name}: {wrong}"
        for page in sorted((root / "docs").glob("*.md"))
        for file, test in NAMED.findall(page.read_text("utf-8"))
        if (wrong := missing(root, file, test)) is not None
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        ({}, ["A limit."]),
        ({"A limit": OUTSIDE}, []),
        ({"A limit": OUTSIDE, "A": OUTSIDE}, ["A limit."]),
        ({"A limit": "project/test_tidy.py::test_that_is_gone"}, ["A limit."]),
        ({"A limit": "test_gone.py::test_sources_are_tidy"}, ["A limit."]),
    ],
)
def test_the_check_finds(root: Path, said: dict[str, str], lines: list[str]) -> None:
    assert list(complaints(root, said, lines))
