"""The beginning of an epoch, as a recorded step: its random stream, the version of the function, what is late in it."""

from __future__ import annotations

from collections.abc import Callable

from clonos.errors import GapError
from clonos.protocol.engine.instance_log import InstanceLog
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.engine.operator_runner import OperatorRunner
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.ids import NO_EPOCH, Epoch
from clonos.protocol.ports import InstancePorts
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.versions.programs import Programs


class EpochBoundary:
    """`programs` is the operator where its function may change from one epoch to another."""

    def __init__(
        self,
        programs: Programs | None,
        ports: InstancePorts,
        services: CausalServices,
        runner: OperatorRunner,
        log: InstanceLog,
        place: InstancePlace,
    ) -> None:
        self.last = NO_EPOCH  # the last epoch that has begun in the log
        self.on_begun: Callable[[], None] = lambda: None
        self._programs = programs
        self._ports = ports
        self._services = services
        self._runner = runner
        self._log = log
        self._place = place

    def restore(self, snapshot: InstanceSnapshot) -> None:
        self.last = snapshot.boundary
        if self._programs is not None:
            self._programs.stands(snapshot.program)

    def begin_if_due(self) -> None:
        """The instance is live, and the epoch may not have begun yet."""
        epoch = self._place.epoch
        if self.last != epoch:
            program = self._programs.scheduled(epoch) if self._programs is not None else ""
            self.begin(epoch, self._ports.entropy(), program, records_watermarks=self._runner.has_event_time)

    def begin(self, epoch: Epoch, seed: int, program: str, *, records_watermarks: bool) -> None:
        """With `records_watermarks`, steps say how the watermark moves; in older versions it followed from records."""
        if self._programs is not None:
            if self._runner.holds and program != self._programs.written:
                raise self.gathered_records_lost()
            self._programs.enter(program)
        entries = bytearray()
        codec.append_boundary(entries, epoch, seed, program, records_watermarks=records_watermarks)
        self._log.append(codec.seal(entries))
        self.last = epoch
        self._runner.begin_epoch(records_watermarks=records_watermarks)
        self._services.epoch_watermark = self._services.watermark
        self._services.random.seed(seed)
        self.on_begun()

    @property
    def program(self) -> str:
        """The version of the function that has written the state, as a snapshot says it."""
        return self._programs.written if self._programs is not None else ""

    def gathered_records_lost(self) -> GapError:
        """An epoch ended inside what was recorded of it, while records were gathered for its end. The process that has
        them in memory goes on with them; no other process can, and no other function."""
        return GapError(
            "an epoch came out shorter than it was recorded, and records that were gathered for its end are gone: "
            "Spark had lost which records it was to have, and gave it others",
            where=self._place.where(),
            hint="Give exactness up for them with spark.clonos.onGap=at_least_once",
        )
