package org.clonos.spark.conduit;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Output rows of one frame, read in place from Arrow memory. What a peer sends is checked against the declared schema
 * before a row is touched: Spark trusts the nullability it was promised.
 */
final class OutputBatch implements AutoCloseable {
  private static final int POSITION = 1;

  private final VectorSchemaRoot root;
  private final ColumnarBatch batch;
  private final int bytes;

  private OutputBatch(VectorSchemaRoot root, int bytes) {
    this.root = root;
    this.bytes = bytes;
    List<FieldVector> vectors = root.getFieldVectors();
    ColumnVector[] columns = new ColumnVector[vectors.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new ArrowColumnVector(vectors.get(i));
    }
    batch = new ColumnarBatch(columns, root.getRowCount());
  }

  static OutputBatch read(ByteBuffer message, int rows, Schema schema, BufferAllocator allocator)
      throws BadFrame {
    ByteArrayInputStream in =
        new ByteArrayInputStream(message.array(), message.position(), message.remaining());
    VectorSchemaRoot root = VectorSchemaRoot.create(schema, allocator);
    boolean complete = false;
    try (ReadChannel channel = new ReadChannel(Channels.newChannel(in));
        ArrowRecordBatch batch = MessageSerializer.deserializeRecordBatch(channel, allocator)) {
      new VectorLoader(root).load(batch);
      check(root, rows);
      complete = true;
      return new OutputBatch(root, message.remaining());
    } catch (IOException | IllegalArgumentException | IllegalStateException | IndexOutOfBoundsException e) {
      throw new BadFrame("output that does not fit the stage's schema: " + e.getMessage());
    } finally {
      if (!complete) {
        root.close();
      }
    }
  }

  private static void check(VectorSchemaRoot root, int rows) {
    if (root.getRowCount() != rows) {
      throw new IllegalArgumentException(rows + " rows announced, " + root.getRowCount() + " found");
    }
    for (FieldVector vector : root.getFieldVectors()) {
      if (!vector.getField().isNullable() && vector.getNullCount() > 0) {
        throw new IllegalArgumentException("null in column '" + vector.getName() + "', which allows none");
      }
    }
  }

  int rows() {
    return batch.numRows();
  }

  int bytes() {
    return bytes;
  }

  long position(int row) {
    return ((BigIntVector) root.getVector(POSITION)).get(row);
  }

  InternalRow row(int row) {
    return batch.getRow(row);
  }

  @Override
  public void close() {
    batch.close();
  }
}
