package org.clonos.spark.conduit;

import java.io.IOException;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * The bundle under construction, where the puller meets the conduit: one thread appends and waits while the bundle is
 * full, the other takes it. Two writers alternate, so serializing never holds the puller up.
 */
final class BundleBuilder implements AutoCloseable {
  /** What the bundle holds at one moment, and whether more can come. */
  record Fill(int rows, long bytes, boolean exhausted, Throwable failure) {}

  /** A complete BUNDLE frame, and how many rows are in it. */
  record Sealed(int rows, byte[] frame) {}

  private final int maxRows;
  private final long maxBytes;
  private final Runnable wake;
  private BundleWriter current;
  private BundleWriter spare;
  private boolean exhausted;
  private boolean closed;
  private Throwable failure;

  BundleBuilder(int maxRows, long maxBytes, Supplier<BundleWriter> writers, Runnable wake) {
    this.maxRows = maxRows;
    this.maxBytes = maxBytes;
    this.wake = wake;
    current = writers.get();
    spare = writers.get();
  }

  /** Appends a row; waits while the bundle is full. */
  synchronized void append(InternalRow row) throws InterruptedException {
    while (full() && !closed) {
      wait();
    }
    if (closed) {
      throw new InterruptedException("the conduit is closed");
    }
    current.write(row);
    if (current.rows() == 1 || full()) {
      wake.run();
    }
  }

  synchronized void exhaust(Throwable cause) {
    exhausted = true;
    failure = cause;
    wake.run();
  }

  synchronized Fill fill() {
    return new Fill(current.rows(), current.bytes(), exhausted, failure);
  }

  /** Takes the rows as a BUNDLE frame; only the conduit's thread calls it. */
  Sealed seal(long seq) throws IOException {
    BundleWriter taken;
    synchronized (this) {
      taken = current;
      current = spare;
      notifyAll();
    }
    Sealed sealed = new Sealed(taken.rows(), taken.seal(seq));
    spare = taken;
    return sealed;
  }

  private boolean full() {
    return current.rows() >= maxRows || current.bytes() >= maxBytes;
  }

  /** Lets go of a waiting puller; the writers stay until {@link #close}. */
  synchronized void stop() {
    closed = true;
    notifyAll();
  }

  @Override
  public synchronized void close() {
    current.close();
    spare.close();
  }
}
