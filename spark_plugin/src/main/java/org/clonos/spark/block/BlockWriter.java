package org.clonos.spark.block;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowFieldWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;
import org.apache.spark.sql.types.StructType;
import org.clonos.spark.release.SparkCalls;

/** Rows of a source to blocks. The vectors are used again for each block. */
public final class BlockWriter implements AutoCloseable {
  private static final int CONSECUTIVE = 0;
  private static final int ABSOLUTE = 8;
  private static final int ALIGNED = 8;

  private final VectorSchemaRoot root;
  private final ArrowFieldWriter[] writers;
  private final int firstColumn;

  /** The user's columns are those of the rows from {@code firstColumn} on. */
  BlockWriter(StructType user, int firstColumn, BufferAllocator allocator) {
    this.firstColumn = firstColumn;
    root = VectorSchemaRoot.create(arrow(user), allocator);
    writers = new ArrowFieldWriter[user.length()];
    for (int i = 0; i < writers.length; i++) {
      writers[i] = ArrowWriter$.MODULE$.createFieldWriter(root.getVector(i));
    }
  }

  /** The Arrow schema of rows on the wire: Spark's own mapping, times in UTC, no large variable-width types. */
  public static Schema arrow(StructType schema) {
    return SparkCalls.toArrowSchema(schema, "UTC");
  }

  /** A block of rows, or, where there are none, of the watermark alone. */
  byte[] block(long epoch, RowGroups.Taken taken) throws IOException {
    if (taken.rows().isEmpty()) {
      return Block.watermark(epoch, taken.channel(), taken.watermark());
    }
    byte[] rows = message(taken.rows());
    long[] positions = taken.positions();
    int width = consecutive(positions) ? CONSECUTIVE : ABSOLUTE;
    int numbers = width * positions.length;
    ByteBuffer out =
        ByteBuffer.allocate(Block.HEADER + numbers + up(rows.length)).order(ByteOrder.LITTLE_ENDIAN);
    out.put((byte) Block.VERSION).put((byte) Block.ROWS).put((byte) Block.ARROW).put((byte) width).putInt(0);
    out.putLong(epoch).putLong(taken.channel()).putLong(positions[0]).putLong(positions[positions.length - 1]);
    out.putInt(positions.length).putInt(0).putInt(rows.length).putInt(0);
    out.putLong(taken.watermark()).putLong(taken.ingested());
    if (width == ABSOLUTE) {
      out.asLongBuffer().put(positions);
      out.position(out.position() + numbers);
    }
    out.put(rows);
    byte[] block = out.array();
    out.putInt(Block.CHECKSUM, Block.checksum(block));
    return block;
  }

  private byte[] message(List<InternalRow> rows) throws IOException {
    for (InternalRow row : rows) {
      for (int i = 0; i < writers.length; i++) {
        writers[i].write(row, firstColumn + i);
      }
    }
    root.setRowCount(rows.size());
    for (ArrowFieldWriter writer : writers) {
      writer.finish();
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch);
    }
    root.setRowCount(0);
    for (ArrowFieldWriter writer : writers) {
      writer.reset();
    }
    return out.toByteArray();
  }

  private static boolean consecutive(long[] positions) {
    for (int i = 1; i < positions.length; i++) {
      if (positions[i] != positions[0] + i) {
        return false;
      }
    }
    return true;
  }

  private static int up(int size) {
    return (size + ALIGNED - 1) / ALIGNED * ALIGNED;
  }

  @Override
  public void close() {
    root.close();
  }
}
