package org.clonos.spark.conduit;

import java.util.ArrayDeque;

/**
 * The instance's own causal log as far as the conduit must be able to hand it back: a contiguous run of increments,
 * from the last CHECKPOINTED offset (or the first increment seen) to the last increment. The bytes are opaque.
 * Increments that come again are recognised by their offset and dropped.
 */
final class KeptLog {
  private static final long UNKNOWN = -1;

  private final ArrayDeque<byte[]> increments = new ArrayDeque<>();
  private long start = UNKNOWN;
  private long end = UNKNOWN;

  /** True when an increment at this offset would leave a hole. */
  boolean leavesHole(long offset) {
    return end != UNKNOWN && offset > end;
  }

  /** Appends what is new of an increment, and gives it back; empty when nothing is. */
  byte[] append(long offset, byte[] bytes) {
    if (bytes.length == 0) {
      return bytes;
    }
    if (end == UNKNOWN) {
      start = offset;
      end = offset;
    }
    long known = end - offset;
    if (known >= bytes.length) {
      return new byte[0];
    }
    byte[] fresh = known == 0 ? bytes : java.util.Arrays.copyOfRange(bytes, (int) known, bytes.length);
    increments.add(fresh);
    end = offset + bytes.length;
    return fresh;
  }

  /** One past the last byte known; 0 where nothing is. */
  long end() {
    return end == UNKNOWN ? 0 : end;
  }

  void forgetBefore(long offset) {
    if (start == UNKNOWN || offset >= end) {
      increments.clear();
      start = Math.max(offset, end);
      end = start;
      return;
    }
    while (start < offset) {
      byte[] head = increments.poll();
      long cut = offset - start;
      if (cut < head.length) {
        increments.addFirst(java.util.Arrays.copyOfRange(head, (int) cut, head.length));
        start = offset;
      } else {
        start += head.length;
      }
    }
  }

  long start() {
    return start == UNKNOWN ? 0 : start;
  }

  byte[] bytes() {
    int size = 0;
    for (byte[] increment : increments) {
      size += increment.length;
    }
    byte[] all = new byte[size];
    int at = 0;
    for (byte[] increment : increments) {
      System.arraycopy(increment, 0, all, at, increment.length);
      at += increment.length;
    }
    return all;
  }
}
