package org.clonos.spark.source;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxBytes;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * The log as a stream of both modes. A micro-batch ends on an entry boundary, found by walking over entry headers from
 * where the last batch ended; a real-time batch ends where its readers stood.
 */
final class LogStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode, ReportsSourceMetrics {
  private final String directory;
  private final int partitions;
  private final ReadLimit defaultLimit;
  private final boolean ownOutput;
  private LogOffset availableNow;

  /**
   * @param ownOutput the query writes this log itself: what it appends while it runs belongs to what is available now
   */
  LogStream(String directory, int partitions, ReadLimit defaultLimit, boolean ownOutput) {
    this.directory = directory;
    this.partitions = partitions;
    this.defaultLimit = defaultLimit;
    this.ownOutput = ownOutput;
  }

  @Override
  public Offset initialOffset() {
    long[] positions = new long[partitions];
    Arrays.fill(positions, LogFormat.MAGIC.length);
    return new LogOffset(positions);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(start, limit) is called instead");
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return defaultLimit;
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    long bytes = Long.MAX_VALUE;
    long rows = Long.MAX_VALUE;
    if (limit instanceof ReadMaxBytes max) {
      bytes = Math.max(1, max.maxBytes() / partitions);
    } else if (limit instanceof ReadMaxRows max) {
      rows = Math.max(1, max.maxRows() / partitions);
    }
    return walk((LogOffset) start, bytes, rows);
  }

  private LogOffset walk(LogOffset start, long bytes, long rows) {
    long[] positions = new long[partitions];
    for (int i = 0; i < partitions; i++) {
      long from = start.position(i);
      long end = availableNow == null ? Long.MAX_VALUE : Math.max(from, availableNow.position(i));
      try (EntryReader entries = new EntryReader(LogFormat.file(directory, i), from)) {
        long count = 0;
        while (count < rows && entries.position() - from < bytes && entries.skip(end)) {
          count++;
        }
        positions[i] = entries.position();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
    return new LogOffset(positions);
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    availableNow = ownOutput ? null : walk((LogOffset) initialOffset(), Long.MAX_VALUE, Long.MAX_VALUE);
  }

  @Override
  public Offset deserializeOffset(String json) {
    return LogOffset.parse(json, partitions);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    InputPartition[] plan = new InputPartition[partitions];
    for (int i = 0; i < partitions; i++) {
      plan[i] = new LogPartition(directory, i, ((LogOffset) start).position(i), ((LogOffset) end).position(i));
    }
    return plan;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    InputPartition[] plan = new InputPartition[partitions];
    for (int i = 0; i < partitions; i++) {
      plan[i] = new LogPartition(directory, i, ((LogOffset) start).position(i), LogPartition.OPEN_END);
    }
    return plan;
  }

  @Override
  public Offset mergeOffsets(PartitionOffset[] reached) {
    long[] positions = new long[partitions];
    for (PartitionOffset offset : reached) {
      LogPartition.Reached one = (LogPartition.Reached) offset;
      positions[one.partition()] = one.position();
    }
    for (int i = 0; i < partitions; i++) {
      if (positions[i] == 0) {
        throw new IllegalStateException("no reader said how far it came in partition " + i + " of " + directory);
      }
    }
    return new LogOffset(positions);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new LogReaderFactory();
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  /** In the progress of a query: how many bytes of entries have not been read. */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumed) {
    if (latestConsumed.isEmpty()) {
      return Map.of();
    }
    // After a start it is as the checkpoint has it.
    LogOffset read = LogOffset.parse(latestConsumed.get().json(), partitions);
    long behind = 0;
    for (int i = 0; i < partitions; i++) {
      behind += Math.max(0, LogFormat.file(directory, i).toFile().length() - read.position(i));
    }
    return Map.of("bytesBehindLatest", Long.toString(behind));
  }

  /** In the progress of a query. */
  @Override
  public String toString() {
    return "clonos log " + directory;
  }
}
