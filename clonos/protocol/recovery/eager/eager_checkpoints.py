"""What eager checkpoints decide for an instance: what it sends waits for a checkpoint, and nothing else does.

What others have of an instance is in its last checkpoint. So no failure makes an orphan of anything, whatever the
instance depended on; a process that takes the place of a lost one goes on from that checkpoint, and sends again what
its conduit lacks.
"""

from __future__ import annotations

from clonos.protocol.recovery.uncoordinated.independent_checkpoints import IndependentCheckpoints


class EagerCheckpoints(IndependentCheckpoints):
    """See the module."""

    replaces = True
    sends_late = True
