"""What a recorder asks of the instance: the clock, and that an effect finds everything stable that it depends on."""

from __future__ import annotations

from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.output_stage import OutputStage
from clonos.protocol.engine.save_queue import SaveQueue
from clonos.protocol.ports import InstancePorts


class RecorderPorts:
    """The `StepPorts` of every step of an instance."""

    def __init__(
        self, ports: InstancePorts, log: InstanceLog, save_queue: SaveQueue, output: OutputStage
    ) -> None:
        self._ports = ports
        self._log = log
        self._save_queue = save_queue
        self._output = output

    def clock(self) -> int:
        return self._ports.clock()

    def stabilise(self, chunk: bytes) -> None:
        self._log.append(chunk)
        self._ports.persist(self._save_queue.take(), durable=True)
        # A standby that repeats a step in advance takes it that its rows have left. This one has none yet.
        self._ports.flush_log(self._output.take_due(), *self._log.unsent)

    def rebuilt(self, chunk: bytes) -> None:
        self._log.append(chunk)
