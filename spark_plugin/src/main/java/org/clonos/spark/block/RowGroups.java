package org.clonos.spark.block;

import java.util.ArrayList;
import java.util.Collection;
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
 * company only while the task's thread is busy with those before it.
 */
final class RowGroups implements RowTaker {
  static final int CHANNEL = 0;
  static final int POSITION = 1;
  static final int DESTINATION = 2;
  private static final int ROW_GUESS = 64;

  private record Key(long channel, int destination) {}

  /** Rows of one channel for one destination, in their order. */
  record Group(long channel, int destination, List<InternalRow> rows) {
    long[] positions() {
      return rows.stream().mapToLong(row -> row.getLong(POSITION)).toArray();
    }
  }

  private final int readers;
  private final int maxRows;
  private final long maxBytes;
  private Map<Key, Group> groups = new LinkedHashMap<>();
  private int rows;
  private long bytes;
  private boolean exhausted;
  private boolean stopped;
  private Throwable failure;

  RowGroups(int readers, int maxRows, long maxBytes) {
    this.readers = readers;
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
    if (row.isNullAt(CHANNEL) || row.isNullAt(POSITION)) {
      throw new CausalStageException("InputError", "a source gave a record without a channel or without a position");
    }
    InternalRow kept = row.copy();
    for (int reader = 0; reader < readers; reader++) {
      Key key = new Key(kept.getLong(CHANNEL), kept.getInt(DESTINATION + reader));
      groups
          .computeIfAbsent(key, at -> new Group(at.channel(), at.destination(), new ArrayList<>()))
          .rows()
          .add(kept);
    }
    bytes += row instanceof UnsafeRow unsafe ? unsafe.getSizeInBytes() : ROW_GUESS;
    if (rows++ == 0) {
      notifyAll();
    }
  }

  @Override
  public synchronized void exhaust(Throwable cause) {
    exhausted = true;
    failure = cause;
    notifyAll();
  }

  /** What has come; empty after the wait or at the end. A failure of the input is thrown at once. */
  synchronized Collection<Group> take(long waitMs) throws Throwable {
    if (groups.isEmpty() && !exhausted) {
      TimeUnit.MILLISECONDS.timedWait(this, waitMs);
    }
    if (failure != null) {
      throw failure;
    }
    if (groups.isEmpty()) {
      return List.of();
    }
    Collection<Group> taken = groups.values();
    groups = new LinkedHashMap<>();
    rows = 0;
    bytes = 0;
    notifyAll();
    return taken;
  }

  /** All rows were taken, and no more come. */
  synchronized boolean finished() {
    return exhausted && failure == null && groups.isEmpty();
  }

  /** Lets go of a waiting puller. */
  synchronized void stop() {
    stopped = true;
    notifyAll();
  }
}
