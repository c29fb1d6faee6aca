"""How long a recovery takes, from a few constants that a calibration run measures on the machine.

    replica lost    hand-over + restore(state) + read(own log) + repeat(records since the last snapshot)
    query lost      hand-over + restore(state) + fetch(what the holders of all instances keep) + repeat(records of the
                    epochs not committed)

Repeating costs what processing cost, less what calls and effects took; records that wait for their turn come from the
conduit or, after a restart, from the source. Instances recover at the same time, so the slowest one counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.sim.scale import Figures


@dataclass(frozen=True)
class Costs:
    """Measured; seconds, or bytes per second."""

    hand_over: float  # a warm spare takes a connection
    restore_rate: float  # bytes of state per second
    log_rate: float  # bytes of deltas per second, decoded and merged
    record: float  # one record repeated
    step: float  # one step repeated, besides its records


@dataclass(frozen=True)
class Load:
    """What an instance has to bring back."""

    state_bytes: int = 64 << 20
    snapshot_seconds: float = 10.0  # since the last snapshot
    epoch_seconds: float = 60.0  # not yet committed


@dataclass(frozen=True)
class RecoverySeconds:
    replica_lost: float
    query_lost: float


def recovery(figures: Figures, costs: Costs, load: Load) -> RecoverySeconds:
    """By the formulas above."""
    cluster = figures.cluster
    base = costs.hand_over + load.state_bytes / costs.restore_rate
    per_second = (
        cluster.records_per_second * costs.record
        + cluster.bundles_per_second * costs.step
        + figures.own_log_per_record * cluster.records_per_second / costs.log_rate
    )
    held = figures.journal_per_second * load.epoch_seconds
    return RecoverySeconds(
        replica_lost=base + load.snapshot_seconds * per_second,
        query_lost=base + load.epoch_seconds * per_second + held / costs.log_rate,
    )
