package org.clonos.spark.conduit;

import java.util.HexFormat;
import org.clonos.spark.task.CausalStageException;

/**
 * A number of 128 bits that rises with every incarnation of an instance; the same as {@code clonos/protocol/fence.py}. The
 * generation is the start of the query and has 64 bits, the attempt is Spark's number of the task attempt plus one and
 * has 48, the replacement has 16. No part may reach into the one above it.
 */
public record Fence(long generation, long attempt, int replacement) {
  static final int BYTES = 16;
  private static final int REPLACEMENT_BITS = 16;
  private static final int LAST_REPLACEMENT = (1 << REPLACEMENT_BITS) - 1;
  private static final long LAST_ATTEMPT = (1L << 48) - 1;
  private static final int HALF = 16;

  public Fence {
    if (attempt < 0 || attempt > LAST_ATTEMPT) {
      throw new CausalStageException(
          "CounterExhausted",
          "task attempt " + attempt + " does not fit into the 48 bits that a fence has for it. Stop the application and"
              + " start it again: its task attempts are counted anew");
    }
    if (replacement < 0 || replacement > LAST_REPLACEMENT) {
      throw new IllegalArgumentException("no replacement has the number " + replacement);
    }
  }

  /** The first fence of the task attempt that Spark calls {@code taskAttemptId}. */
  static Fence first(long generation, long taskAttemptId) {
    return new Fence(generation, taskAttemptId + 1, 0);
  }

  /** Whether the task attempt has none after it. */
  boolean isLast() {
    return replacement == LAST_REPLACEMENT;
  }

  Fence next() {
    return new Fence(generation, attempt, replacement + 1);
  }

  private long low() {
    return attempt << REPLACEMENT_BITS | replacement;
  }

  /** 32 hexadecimal digits. */
  String text() {
    HexFormat hex = HexFormat.of();
    return hex.toHexDigits(generation) + hex.toHexDigits(low());
  }

  static Fence parse(String text) {
    long low = HexFormat.fromHexDigitsToLong(text, HALF, 2 * HALF);
    return new Fence(
        HexFormat.fromHexDigitsToLong(text, 0, HALF), low >>> REPLACEMENT_BITS, (int) (low & LAST_REPLACEMENT));
  }

  /** Behind what the frame holds, big-endian. */
  void put(FrameBuffer frame) {
    frame.putLong(Long.reverseBytes(generation));
    frame.putLong(Long.reverseBytes(low()));
  }
}
