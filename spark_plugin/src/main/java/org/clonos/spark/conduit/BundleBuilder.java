package org.clonos.spark.conduit;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.clonos.spark.block.Block;
import org.clonos.spark.progress.InstanceReport;
import org.clonos.spark.task.RowTaker;

/**
 * The bundle under construction, where the puller meets the conduit: one thread appends blocks and waits while the next
 * one does not fit, the other takes the bundle.
 */
final class BundleBuilder implements RowTaker {
  private static final int BUNDLE_HEADER = 16;
  private static final int BLOCK_HEADER = 8;

  /** What the bundle holds at one moment, and whether more can come. It is as large as allowed if a block waits. */
  record Fill(int rows, long bytes, boolean exhausted, Throwable failure) {}

  /** A complete BUNDLE frame, and how many rows are in it. */
  record Sealed(int rows, byte[] frame) {}

  private final int column;
  private final int maxRows;
  private final long maxBytes;
  private final Runnable wake;
  private final long[] received = InstanceReport.nothingReceived();
  private List<byte[]> blocks = new ArrayList<>();
  private int rows;
  private long bytes;
  private boolean oneWaits;
  private boolean exhausted;
  private boolean closed;
  private Throwable failure;

  /** The block stands in this column of the rows that come. */
  BundleBuilder(int column, int maxRows, long maxBytes, Runnable wake) {
    this.column = column;
    this.maxRows = maxRows;
    this.maxBytes = maxBytes;
    this.wake = wake;
  }

  @Override
  public void append(InternalRow row) throws InterruptedException {
    append(row.getBinary(column));
  }

  private synchronized void append(byte[] bytesOfBlock) throws InterruptedException {
    Block header = Block.of(bytesOfBlock);
    int more = header.rows();
    while (!closed && !blocks.isEmpty() && (rows + more > maxRows || bytes + bytesOfBlock.length > maxBytes)) {
      oneWaits = true;
      wake.run();
      wait();
    }
    oneWaits = false;
    if (closed) {
      throw new InterruptedException("the conduit is closed");
    }
    blocks.add(bytesOfBlock);
    received[header.node()] += more;
    rows += more;
    bytes += bytesOfBlock.length;
    if (blocks.size() == 1 || rows >= maxRows || bytes >= maxBytes) {
      wake.run();
    }
  }

  @Override
  public synchronized void exhaust(Throwable cause) {
    exhausted = true;
    failure = cause;
    wake.run();
  }

  /** By node, how many rows have come from there. */
  synchronized long[] received() {
    return received.clone();
  }

  synchronized Fill fill() {
    return new Fill(rows, oneWaits ? Math.max(bytes, maxBytes) : bytes, exhausted, failure);
  }

  /** Takes the blocks as a BUNDLE frame; only the conduit's thread calls it. */
  Sealed seal(long seq) {
    List<byte[]> taken;
    int takenRows;
    long size;
    synchronized (this) {
      taken = blocks;
      takenRows = rows;
      size = bytes;
      blocks = new ArrayList<>();
      rows = 0;
      bytes = 0;
      oneWaits = false;
      notifyAll();
    }
    FrameBuffer out = new FrameBuffer(
        (int) Math.min(Frames.HEADER + BUNDLE_HEADER + size + (long) BLOCK_HEADER * taken.size(), Frames.MAX_LENGTH));
    out.putLong(seq);
    out.putInt(takenRows);
    out.putInt(taken.size());
    for (byte[] block : taken) {
      out.putInt(0);
      out.putInt(block.length);
      out.put(block);
    }
    return new Sealed(takenRows, out.frame(Frames.BUNDLE));
  }

  /** Lets go of a waiting puller. */
  synchronized void stop() {
    closed = true;
    notifyAll();
  }
}
