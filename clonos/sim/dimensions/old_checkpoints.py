"""What a checkpoint says is not what happened last: Spark has lost a commit, or the offsets of an epoch,
that it did not sync, the user has restored an older copy under a sink that is newer, or the snapshots of
an instance are gone."""

from __future__ import annotations

from random import Random

from clonos.sim.plan import Plan

SHARE = 0.3
"""The share of such runs. In a part of them the query may stop, and must if it could not go on right."""
DRIVER_LOSS = (0.008, 0.02)


def old_checkpoints(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= SHARE:
        return plan
    plan = plan.with_rates(DRIVER_LOSS=rng.choice(DRIVER_LOSS), COMMIT_LOST=rng.choice((0.4, 0.9)))
    if rng.random() < 0.3:
        plan = plan.with_rates(CHECKPOINT_OLDER=rng.choice((0.3, 0.8)))
    if rng.random() < 0.1:
        plan = plan.with_rates(SNAPSHOTS_GONE=0.2)
    if not plan.realtime and rng.random() < 0.5:
        plan = plan.with_rates(OFFSETS_LOST=rng.choice((0.2, 0.6)))
    return plan
