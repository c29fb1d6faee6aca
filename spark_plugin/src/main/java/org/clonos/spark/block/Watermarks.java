package org.clonos.spark.block;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * How far event time has come in a task of a source, by channel and timed reader, and what each destination knows of
 * it. A block tells its destination. The others are told in rounds, so that a source with many destinations does not
 * send every one of them a block for each row that one of them gets.
 *
 * <p>Not thread safe: {@link RowGroups} guards it.
 */
final class Watermarks {
  private static final long INTERVAL = TimeUnit.MILLISECONDS.toNanos(100);

  private record Key(long channel, int reader) {}

  /** Of one channel for one reader. */
  final class Watermark {
    private final long channel;
    private final int first;
    private final long[] told;
    private final long[] toldIn;
    private long highest = Block.NO_WATERMARK;
    private boolean spoke;

    private Watermark(Key key) {
      channel = key.channel();
      first = readers.firsts()[key.reader()];
      told = new long[readers.counts()[key.reader()]];
      Arrays.fill(told, Block.NO_WATERMARK);
      toldIn = new long[told.length];
    }

    void advance(long eventTime) {
      highest = Math.max(highest, eventTime);
      spoke = true;
      untold = true;
    }

    /** The watermark now, of which the destination is told. */
    long tell(int destination) {
      toldIn[destination - first] = round;
      told[destination - first] = highest;
      return highest;
    }

    private void tellOthers(Collection<RowGroups.Taken> into) {
      for (int at = 0; at < toldIn.length && spoke; at++) {
        if (toldIn[at] < round || told[at] < highest) {
          into.add(RowGroups.Taken.ofWatermark(channel, first + at, tell(first + at)));
        }
      }
      spoke = false;
    }
  }

  private final Readers readers;
  private final int[] timeColumns;
  private final Map<Key, Watermark> all = new HashMap<>();
  private boolean untold;
  private long round = 1;
  private long roundAt = System.nanoTime() - INTERVAL;

  Watermarks(Readers readers) {
    this.readers = readers;
    timeColumns = readers.timeColumns();
  }

  /** Null for a reader without event time. */
  Watermark of(long channel, int reader) {
    return timeColumns[reader] < 0 ? null : all.computeIfAbsent(new Key(channel, reader), Watermark::new);
  }

  /** Whether rows have come since the last round: a destination may not know. */
  boolean untold() {
    return untold;
  }

  /** How long to wait for rows, if it may be so long: not beyond the next round. */
  long waitMs(long longest) {
    if (!untold) {
      return longest;
    }
    long left = roundAt + INTERVAL - System.nanoTime();
    return Math.min(longest, TimeUnit.NANOSECONDS.toMillis(left) + 1);
  }

  /**
   * Tells all destinations of the channels that rows have come of, unless the last round was just now; {@code last}: in
   * any case. Also where the watermark has not changed: to an instance that hears nothing, a channel is idle.
   */
  void round(boolean last, Collection<RowGroups.Taken> into) {
    long now = System.nanoTime();
    if (!untold || (!last && now - roundAt < INTERVAL)) {
      return;
    }
    untold = false;
    roundAt = now;
    for (Watermark watermark : all.values()) {
      watermark.tellOthers(into);
    }
    round++;
  }
}
