package peers_kit;

import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.types.Row;

/**
 * Follows the embedded log. Each subtask has every so-many-th partition; positions stand in the checkpoints, and what is
 * emitted moves them under the checkpoint lock.
 */
public final class LogSource extends RichParallelSourceFunction<Row> implements CheckpointedFunction {
    private static final int MAGIC = 8;
    private static final int HEADER = 16;
    private static final int CHUNK = 64 << 10;

    private final String log;
    private final int partitions;
    private final Map<Integer, Long> positions = new TreeMap<>();
    private transient ListState<Tuple2<Integer, Long>> kept;
    private volatile boolean running = true;

    public LogSource(String log, int partitions) {
        this.log = log;
        this.partitions = partitions;
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
        var descriptor = new ListStateDescriptor<>("positions", Types.TUPLE(Types.INT, Types.LONG));
        @SuppressWarnings("unchecked")
        var typed = (ListStateDescriptor<Tuple2<Integer, Long>>) (ListStateDescriptor<?>) descriptor;
        kept = context.getOperatorStateStore().getUnionListState(typed);
        var mine = getRuntimeContext().getTaskInfo();
        for (int p = mine.getIndexOfThisSubtask(); p < partitions; p += mine.getNumberOfParallelSubtasks()) {
            positions.put(p, (long) MAGIC);
        }
        for (var entry : kept.get()) {
            positions.computeIfPresent(entry.f0, (partition, start) -> entry.f1);
        }
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
        kept.clear();
        for (var entry : positions.entrySet()) {
            kept.add(Tuple2.of(entry.getKey(), entry.getValue()));
        }
    }

    @Override
    public void run(SourceContext<Row> context) throws Exception {
        var files = new TreeMap<Integer, RandomAccessFile>();
        try {
            for (int partition : positions.keySet()) {
                files.put(partition, new RandomAccessFile(log + "/" + partition + ".log", "r"));
            }
            var chunk = new byte[CHUNK];
            var json = new ObjectMapper();
            while (running) {
                boolean some = false;
                for (var file : files.entrySet()) {
                    file.getValue().seek(positions.get(file.getKey()));
                    int length = file.getValue().read(chunk);
                    some |= length > 0 && emit(context, json, file.getKey(), chunk, length);
                }
                if (!some) {
                    Thread.sleep(1);
                }
            }
        } finally {
            for (var file : files.values()) {
                file.close();
            }
        }
    }

    /** Emits the complete records of a chunk; whether there was one. */
    private boolean emit(SourceContext<Row> context, ObjectMapper json, int partition, byte[] chunk, int length)
            throws Exception {
        var buffer = ByteBuffer.wrap(chunk, 0, length).order(ByteOrder.LITTLE_ENDIAN);
        int at = 0;
        while (at + HEADER <= length && at + HEADER + buffer.getInt(at) <= length) {
            int size = buffer.getInt(at);
            JsonNode fields = json.readTree(chunk, at + HEADER, size);
            at += HEADER + size;
            synchronized (context.getCheckpointLock()) {
                context.collect(Row.of(fields.get("k").textValue(), fields.get("id").textValue()));
                positions.merge(partition, (long) (HEADER + size), Long::sum);
            }
        }
        return at > 0;
    }

    @Override
    public void cancel() {
        running = false;
    }
}
