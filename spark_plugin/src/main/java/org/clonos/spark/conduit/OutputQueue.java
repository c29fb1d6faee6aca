package org.clonos.spark.conduit;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;

/**
 * Output on its way to Spark's task thread. It is bounded by asking: the conduit stops reading while {@link #full},
 * and is woken when there is room again.
 */
final class OutputQueue {
  private static final int MAX_BATCHES = 64;
  private static final long MAX_BYTES = 32 << 20;

  private final Runnable wake;
  private final ArrayDeque<OutputBlocks> batches = new ArrayDeque<>();
  private long bytes;
  private boolean finished;
  private Throwable failure;

  OutputQueue(Runnable wake) {
    this.wake = wake;
  }

  synchronized boolean full() {
    return batches.size() >= MAX_BATCHES || bytes >= MAX_BYTES;
  }

  synchronized void put(OutputBlocks batch) {
    batches.add(batch);
    bytes += batch.bytes();
    notifyAll();
  }

  synchronized void finish(Throwable cause) {
    if (!finished) {
      finished = true;
      failure = cause;
      notifyAll();
    }
  }

  /** All output was given out, and nothing failed. */
  synchronized boolean finished() {
    return finished && failure == null && batches.isEmpty();
  }

  /** The next batch, or null after the wait or at the end. A failure is thrown at once. */
  synchronized OutputBlocks poll(long waitMs) throws InterruptedException, Throwable {
    if (batches.isEmpty() && !finished) {
      TimeUnit.MILLISECONDS.timedWait(this, waitMs);
    }
    if (failure != null) {
      throw failure;
    }
    boolean wasFull = full();
    OutputBlocks batch = batches.poll();
    if (batch != null) {
      bytes -= batch.bytes();
      if (wasFull && !full()) {
        wake.run();
      }
    }
    return batch;
  }

  synchronized void clear() {
    batches.clear();
  }
}
