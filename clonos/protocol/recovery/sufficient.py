"""Which recoveries suffice for an operator, and which of them is the cheapest.

A recovery suffices if after any failure the outside has seen what one run without failures could have shown, once.
What each one repeats, and what it does not:

- the epoch is run again from the last snapshots: the same records, in another order between channels, and the outside
  may have seen what they gave before;
- batch: the same, but the outside has seen nothing of it;
- coordinated, by aligned barriers (Chandy and Lamport; asynchronous barrier snapshots): a round is undone as a whole,
  its rows with it, so anything may be different, as long as nothing of the round was seen;
- uncoordinated, with logs at the senders: each channel's records in their order, in another order between channels;
- causal: the recorded order, bundles and outcomes;
- eager: nothing, for nothing that is repeated has left the instance before. An effect has.
"""

from __future__ import annotations

import enum

from clonos.protocol.recovery.dependence import Dependence, Determinism, Sensitivity


class Recovery(enum.IntEnum):
    """Ordered by what they cost while nothing fails."""

    EPOCH_AGAIN = 1
    BATCH = 2
    COORDINATED = 3
    UNCOORDINATED = 4
    CAUSAL = 5
    EAGER = 6


class Visibility(enum.Enum):
    """When the outside sees rows."""

    WITH_EPOCH = "with_epoch"  # all rows of an epoch, or of a round, in one step, which the sink takes once
    AT_ONCE = "at_once"


OFFERED = frozenset(
    {Recovery.EPOCH_AGAIN, Recovery.BATCH, Recovery.COORDINATED, Recovery.CAUSAL, Recovery.EAGER}
)
"""What `cheapest` chooses among unless it is told: Spark's own recovery, and those of `recovery_kind`."""


def suffices(recovery: Recovery, dependence: Dependence, visibility: Visibility) -> bool:
    """Whether the recovery is exact for an operator of which this is known.

    An epoch that is run again after its sink has taken it goes on with the state of the second run behind the rows of
    the first one: so the states must be the same, though not the rows on the way.
    """
    at_once = visibility is Visibility.AT_ONCE
    if recovery is Recovery.CAUSAL:
        return dependence.determinism is not Determinism.HIDDEN
    if dependence.has_effects:  # which would take place again, perhaps others
        return False
    if recovery is Recovery.EAGER:
        return True
    if recovery in (Recovery.BATCH, Recovery.COORDINATED):
        return not at_once
    may_differ = (
        Sensitivity.INSENSITIVE
        if at_once or recovery is Recovery.UNCOORDINATED  # of one instance: others have seen its rows
        else Sensitivity.CONVERGENT
    )
    return dependence.determinism is Determinism.DETERMINISTIC and dependence.on_arrival <= may_differ


def cheapest(
    dependence: Dependence, visibility: Visibility, among: frozenset[Recovery] = OFFERED
) -> Recovery | None:
    """The cheapest recovery that suffices; None where none does."""
    return min((each for each in among if suffices(each, dependence, visibility)), default=None)
