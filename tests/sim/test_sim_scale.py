"""Virtual clusters: the figures move as the protocol says they must."""

from __future__ import annotations

import pytest

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.sim.cost_model import Costs, Load, recovery
from clonos.sim.recovery_scale import forced_per_own, messages_with_markers, vector_bytes_per_row
from clonos.sim.scale import Cluster, simulate

COSTS = Costs(hand_over=0.05, restore_rate=100e6, log_rate=10e6, record=1e-5, step=1e-4)


def test_same_cluster_gives_the_same_figures() -> None:
    assert simulate(Cluster(3, 8)) == simulate(Cluster(3, 8))


def test_own_log_does_not_depend_on_depth() -> None:
    assert simulate(Cluster(2, 8)).own_log_per_record == pytest.approx(
        simulate(Cluster(6, 8)).own_log_per_record, rel=0.1
    )


def test_wire_grows_with_parallelism_and_with_depth_and_shrinks_with_sharing() -> None:
    base = simulate(Cluster(4, 16)).wire_per_record
    assert simulate(Cluster(4, 32)).wire_per_record > 2 * base
    assert simulate(Cluster(6, 16)).wire_per_record > base
    assert simulate(Cluster(4, 16, 1)).wire_per_record < simulate(Cluster(4, 16, 2)).wire_per_record < base


def test_a_chain_shares_every_log_once() -> None:
    """One instance per layer: what a row takes along is what the instances before it wrote, plus little."""
    figures = simulate(Cluster(3, 1))
    assert 2 <= figures.wire_per_record / figures.own_log_per_record < 4
    assert 3 <= figures.sink_per_record / figures.own_log_per_record < 5


@pytest.mark.parametrize("sharing", [1, FULL])
def test_memory_holds_what_is_shared(sharing: int) -> None:
    figures = simulate(Cluster(3, 8, sharing))
    own = figures.own_log_per_record * figures.cluster.records_per_second
    origins = 1 + 8 * (1 if sharing == 1 else 2)
    # The layer above is handed on by the next only within the depth, so depth 1 keeps the own log alone.
    assert figures.journal_per_second == pytest.approx(own * (1 if sharing == 1 else origins), rel=0.2)


def test_recovery_takes_longer_where_there_is_more_to_bring_back() -> None:
    figures = simulate(Cluster(3, 8))
    short = recovery(figures, COSTS, Load(state_bytes=1 << 20, snapshot_seconds=1, epoch_seconds=10))
    long = recovery(figures, COSTS, Load(state_bytes=1 << 30, snapshot_seconds=10, epoch_seconds=100))
    assert COSTS.hand_over < short.replica_lost < short.query_lost < long.query_lost
    assert long.replica_lost > (1 << 30) / COSTS.restore_rate


def test_markers_and_vectors_grow_with_the_cluster() -> None:
    small, large, huge = Cluster(3, 4), Cluster(3, 64), Cluster(10, 1000)
    assert 1 < messages_with_markers(small, 1.0) < messages_with_markers(large, 1.0) < 1.2
    assert messages_with_markers(huge, 1.0) == pytest.approx(2, rel=0.1), "as many markers as other messages"
    assert messages_with_markers(huge, 10.0) < 1.2
    assert vector_bytes_per_row(small) < 5 and vector_bytes_per_row(huge) > 10_000


def test_more_is_forced_where_more_layers_take_checkpoints() -> None:
    flat, deep = (forced_per_own(Cluster(layers, 4), 1.0) for layers in (2, 8))
    assert flat < deep and deep > 0.5
    assert forced_per_own(Cluster(1, 4), 1.0) == 0, "no row comes from another instance"
    assert forced_per_own(Cluster(4, 4), 1.0) == forced_per_own(Cluster(4, 4), 1.0)
