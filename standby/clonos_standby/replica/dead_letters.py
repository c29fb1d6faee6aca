"""Writing the dead letter of a record that is about to be passed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.operators.rows import RowEncoder, is_right
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.recovery.quarantine import CandidateRecord
from clonos.protocol.roles.death import Death
from clonos.storage.dead_letters import DeadLetter, LetterBox
from clonos.storage.one_row import row_stream
from clonos_standby.cluster.spec import NodeSpec

_TOLD_OF_A_DEATH = ("kind", "signal", "code", "message", "at", "pid", "max_rss_kib", "stderr")


class Letters:
    """The letters of one instance, as its replica writes them."""

    def __init__(
        self, node: NodeSpec, origin: Origin, checkpoint: str, fence: Fence, *, intercept: bool
    ) -> None:
        self._node = node
        self._intercept = intercept
        self._origin = origin
        self._box = LetterBox(checkpoint, origin.node, origin.instance, fence=fence)

    def write(
        self,
        candidate: CandidateRecord,
        key: tuple[Any, ...],
        operator: Any,
        services: CausalServices,
        epoch: Epoch,
        deaths: Sequence[Death],
    ) -> str:
        """The letter's place. It is durable when this returns."""
        node = self._node
        assert node.output is not None
        right = node.right if is_right(candidate.row) else None
        schema = node.input if right is None else right.schema
        row = RowEncoder(schema, node.zone, node.name).batch([candidate.row])
        return self._box.write(
            DeadLetter(
                operator=node.name,
                operator_version=operator.version,
                form=operator.form,
                node=self._origin.node,
                instance=self._origin.instance,
                epoch=epoch,
                channel=candidate.channel,
                position=candidate.position,
                zone=node.zone,
                row=row_stream(row),
                output=node.output.serialize().to_pybytes(),
                key=key,
                state=operator.kept(key),
                watermark=services.watermark,
                random=services.random.getstate(),
                recorded=candidate.recorded,
                deaths=[{name: getattr(death, name) for name in _TOLD_OF_A_DEATH} for death in deaths],
                side_outputs={
                    name: schema.serialize().to_pybytes() for name, schema in node.side_outputs.items()
                },
                intercept=self._intercept,
            )
        )
