"""The ledger as a PyFlink DataStream job with the exactly-once FileSink, in a local cluster with worker processes.

A checkpoint is taken every `INTERVAL` milliseconds, and only then are the part files of the rows before it renamed to
what a reader finds. A lost worker fails its task, and the job starts again from the last checkpoint.

    python -m peers_kit.flink_job LOG FOLDER INTERVAL
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator

from pyflink.common import Configuration, Encoder, Row, Types
from pyflink.datastream import (
    CheckpointingMode,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from pyflink.datastream.functions import SourceFunction
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

from clonos.storage.embedded_log import partitions_of
from clonos.testing.ledger import extend

SETTINGS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "0 s",
    "state.backend.type": "hashmap",
    # Where records pile up, after a burst or a restart, checkpoints overtake them.
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "200 ms",
    "python.fn-execution.bundle.time": "100",
    "pipeline.object-reuse": "true",
}


class Ledger(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        head = Types.ROW_NAMED(["n", "hash"], [Types.LONG(), Types.STRING()])
        self._head = runtime_context.get_state(ValueStateDescriptor("head", head))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        head = self._head.value()
        state = {} if head is None else {"n": head[0], "hash": head[1]}
        entry = extend(state, value[0], value[1], random.getrandbits(63), time.time_ns() // 1000)
        self._head.update(Row(entry.n, entry.hash))
        yield json.dumps(entry.row())


def main() -> None:
    log, folder, interval = sys.argv[1:]
    configuration = Configuration()
    for name, value in SETTINGS.items():
        configuration.set_string(name, value)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("execution.checkpointing.dir", f"file://{folder}/checkpoints")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    partitions = partitions_of(log)
    environment.set_parallelism(partitions)
    environment.enable_checkpointing(int(interval), CheckpointingMode.EXACTLY_ONCE)
    source = SourceFunction(get_gateway().jvm.peers_kit.LogSource(log, partitions))
    sink = (
        FileSink.for_row_format(f"file://{folder}/out", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    (
        environment.add_source(source, "log", Types.ROW([Types.STRING(), Types.STRING()]))
        .key_by(lambda row: row[0], Types.STRING())
        .process(Ledger(), Types.STRING())
        .sink_to(sink)
    )
    environment.execute("ledger")


if __name__ == "__main__":
    main()
