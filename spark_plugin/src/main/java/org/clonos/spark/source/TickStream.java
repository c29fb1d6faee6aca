package org.clonos.spark.source;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * The seconds of the driver's clock, as a stream without rows. With the trigger {@code availableNow} it stands still, so
 * that such a query ends with its data, in batches as large as the other sources make them.
 *
 * <p>One partition, which is empty: a stage that is known to have no input at all does not run.
 */
public final class TickStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  /** What Spark calls it in the progress of a query. */
  public static final String DESCRIPTION = "clonos ticks";

  private long standsAt = -1;

  private static final class Second extends Offset {
    private final long number;

    Second(long number) {
      this.number = number;
    }

    @Override
    public String json() {
      return Long.toString(number);
    }
  }

  private record Nothing() implements InputPartition {}

  private static final class NothingReader implements PartitionReader<InternalRow> {
    @Override
    public boolean next() {
      return false;
    }

    @Override
    public InternalRow get() {
      throw new IllegalStateException("there are no rows");
    }

    @Override
    public void close() {}
  }

  private static long now() {
    return System.currentTimeMillis() / 1000;
  }

  @Override
  public Offset initialOffset() {
    return new Second(now());
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(start, limit) is called instead");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    long from = ((Second) start).number;
    return new Second(Math.max(from, standsAt >= 0 ? standsAt : now())); // a clock may be set back
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    standsAt = now();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new Second(Long.parseLong(json));
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return new InputPartition[] {new Nothing()};
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new NothingReaders();
  }

  private record NothingReaders() implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new NothingReader();
    }
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  @Override
  public String toString() {
    return DESCRIPTION;
  }
}
