package org.clonos.spark.conduit;

import java.io.IOException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.arrow.ArrowFieldWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;

/** Rows of one bundle as Arrow vectors. Every row is copied at once: Spark reuses its memory for the next one. */
final class BundleWriter implements AutoCloseable {
  private static final int ROW_GUESS = 64;

  private final VectorSchemaRoot root;
  private final ArrowFieldWriter[] writers;
  private final int[] ordinals;
  private int rows;
  private long bytes;

  /** Column {@code i} of the bundle is column {@code ordinals[i]} of the rows. */
  BundleWriter(Schema schema, int[] ordinals, BufferAllocator allocator) {
    this.ordinals = ordinals;
    root = VectorSchemaRoot.create(schema, allocator);
    writers = new ArrowFieldWriter[ordinals.length];
    for (int i = 0; i < writers.length; i++) {
      writers[i] = ArrowWriter$.MODULE$.createFieldWriter(root.getVector(i));
    }
  }

  void write(InternalRow row) {
    for (int i = 0; i < writers.length; i++) {
      writers[i].write(row, ordinals[i]);
    }
    rows++;
    bytes += row instanceof UnsafeRow unsafe ? unsafe.getSizeInBytes() : ROW_GUESS;
  }

  int rows() {
    return rows;
  }

  /** Bytes of the rows as Spark holds them: close to their size in Arrow, and free to know. */
  long bytes() {
    return bytes;
  }

  /** The BUNDLE frame of the rows; empties the writer. */
  byte[] seal(long seq) throws IOException {
    root.setRowCount(rows);
    for (ArrowFieldWriter writer : writers) {
      writer.finish();
    }
    FrameBuffer out = new FrameBuffer((int) Math.min(bytes + 1024, Frames.MAX_LENGTH));
    out.putLong(seq);
    out.putInt(rows);
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      MessageSerializer.serialize(new WriteChannel(out), batch);
    }
    root.setRowCount(0);
    for (ArrowFieldWriter writer : writers) {
      writer.reset();
    }
    rows = 0;
    bytes = 0;
    return out.frame(Frames.BUNDLE);
  }

  @Override
  public void close() {
    root.close();
  }
}
