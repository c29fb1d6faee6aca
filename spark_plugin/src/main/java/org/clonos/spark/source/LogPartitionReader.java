package org.clonos.spark.source;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;

/** Reads one partition, up to a known end or, in real-time mode, as entries are appended. */
final class LogPartitionReader implements SupportsRealTimeRead<InternalRow> {
  private static final long POLL_NANOS = 1_500_000;

  private final LogPartition partition;
  private final EntryReader entries;
  private InternalRow row;

  LogPartitionReader(LogPartition partition) {
    this.partition = partition;
    this.entries = new EntryReader(LogFormat.file(partition.directory(), partition.partition()), partition.start());
  }

  @Override
  public boolean next() throws IOException {
    byte[] payload = entries.next(partition.end());
    if (payload != null) {
      long position = entries.entryPosition();
      int number = partition.partition();
      row =
          new GenericInternalRow(
              new Object[] {payload, number, position, entries.appendMicros(), number, position});
      return true;
    }
    if (partition.end() != LogPartition.OPEN_END && entries.position() < partition.end()) {
      Path file = LogFormat.file(partition.directory(), partition.partition());
      throw LogFormat.cutOff(file, entries.position(), partition.end());
    }
    return false;
  }

  /** In real time; an earlier Spark than 4.3, where queries have micro-batch mode alone, asks for another signature. */
  @Override
  public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    long deadline = System.nanoTime() + timeoutMs * 1_000_000;
    while (!next()) {
      if (System.nanoTime() >= deadline) {
        return RecordStatus.newStatusWithoutArrivalTime(false);
      }
      LockSupport.parkNanos(POLL_NANOS);
      if (Thread.interrupted()) {
        throw new IOException("interrupted while waiting for the log to grow", new InterruptedException());
      }
    }
    return RecordStatus.newStatusWithArrivalTimeMs(entries.appendMicros() / 1000);
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public PartitionOffset getOffset() {
    return new LogPartition.Reached(partition.partition(), entries.position());
  }

  @Override
  public void close() throws IOException {
    entries.close();
  }
}
