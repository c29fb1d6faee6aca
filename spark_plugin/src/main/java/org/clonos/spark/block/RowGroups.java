package org.clonos.spark.block;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.clonos.spark.task.CausalStageException;
import org.clonos.spark.task.RowTaker;

/**
 * Rows of a source partition on their way into blocks, by channel and destination. One thread appends, and waits while
 * there are enough for a bundle; the task's thread takes all there are as soon as there are any. So a row waits for
 * company only while the task's thread is busy with those before it. What is taken says the watermark of that moment.
 */
final class RowGroups implements RowTaker {
  private static final int ROW_GUESS = 64;

  private record Key(long channel, int destination) {}

  /**
   * Rows of one channel for one destination, in their order; the watermark is null where the reader has none. {@code
   * ingested} is when the first of them came, in microseconds since 1970.
   */
  private record Group(Watermarks.Watermark watermark, List<InternalRow> rows, long ingested) {}

  /** What becomes a block. Without rows there is a watermark. */
  record Taken(long channel, int destination, List<InternalRow> rows, long watermark, long ingested) {
    /** A watermark alone. */
    static Taken ofWatermark(long channel, int destination, long watermark) {
      return new Taken(channel, destination, List.of(), watermark, 0);
    }

    long[] positions() {
      return rows.stream().mapToLong(row -> row.getLong(Readers.POSITION)).toArray();
    }
  }

  private final int[] timeColumns;
  private final Watermarks watermarks;
  private final int maxRows;
  private final long maxBytes;
  private Map<Key, Group> groups = new LinkedHashMap<>();
  private int rows;
  private long bytes;
  private boolean exhausted;
  private boolean stopped;
  private Throwable failure;

  RowGroups(Readers readers, int maxRows, long maxBytes) {
    this.timeColumns = readers.timeColumns();
    this.watermarks = new Watermarks(readers);
    this.maxRows = maxRows;
    this.maxBytes = maxBytes;
  }

  @Override
  public synchronized void append(InternalRow row) throws InterruptedException {
    while ((rows >= maxRows || bytes >= maxBytes) && !stopped) {
      wait();
    }
    if (stopped) {
      throw new InterruptedException("the task is over");
    }
    if (row.isNullAt(Readers.CHANNEL) || row.isNullAt(Readers.POSITION)) {
      throw new CausalStageException("InputError", "a source gave a record without a channel or without a position");
    }
    InternalRow kept = row.copy();
    for (int reader = 0; reader < timeColumns.length; reader++) {
      Group group = group(kept, reader);
      group.rows().add(kept);
      if (timeColumns[reader] >= 0 && !kept.isNullAt(timeColumns[reader])) {
        group.watermark().advance(kept.getLong(timeColumns[reader]));
      }
    }
    bytes += row instanceof UnsafeRow unsafe ? unsafe.getSizeInBytes() : ROW_GUESS;
    if (rows++ == 0) {
      notifyAll();
    }
  }

  /** The group that the row belongs to for this reader. */
  private Group group(InternalRow row, int reader) {
    Key key = new Key(row.getLong(Readers.CHANNEL), row.getInt(Readers.DESTINATION + reader));
    Group group = groups.get(key);
    if (group == null) {
      group = new Group(watermarks.of(key.channel(), reader), new ArrayList<>(), now());
      groups.put(key, group);
    }
    return group;
  }

  private static long now() {
    return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
  }

  @Override
  public synchronized void exhaust(Throwable cause) {
    exhausted = true;
    failure = cause;
    notifyAll();
  }

  /** What has come; empty after the wait or at the end. A failure of the input is thrown at once. */
  synchronized List<Taken> take(long waitMs) throws Throwable {
    if (groups.isEmpty() && !exhausted) {
      TimeUnit.MILLISECONDS.timedWait(this, watermarks.waitMs(waitMs));
    }
    if (failure != null) {
      throw failure;
    }
    List<Taken> taken = new ArrayList<>(groups.size());
    if (!groups.isEmpty()) {
      groups.forEach((key, group) -> taken.add(taken(key, group)));
      groups = new LinkedHashMap<>();
      rows = 0;
      bytes = 0;
      notifyAll();
    }
    watermarks.round(exhausted, taken);
    return taken;
  }

  private static Taken taken(Key key, Group group) {
    Watermarks.Watermark watermark = group.watermark();
    long said = watermark == null ? Block.NO_WATERMARK : watermark.tell(key.destination());
    return new Taken(key.channel(), key.destination(), group.rows(), said, group.ingested());
  }

  /** All rows were taken, all destinations know the watermarks, and no more rows come. */
  synchronized boolean finished() {
    return exhausted && failure == null && groups.isEmpty() && !watermarks.untold();
  }

  /** Lets go of a waiting puller. */
  synchronized void stop() {
    stopped = true;
    notifyAll();
  }
}
