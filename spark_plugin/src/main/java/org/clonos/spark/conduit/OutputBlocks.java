package org.clonos.spark.conduit;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.clonos.spark.block.Block;
import org.clonos.spark.block.BlockRow;

/** The blocks of one OUTPUT frame as Spark's rows, and what their headers say. */
final class OutputBlocks {
  private final List<InternalRow> blocks = new ArrayList<>();
  private final int bytes;
  private final int[] route;
  private long rows;
  private long first = Long.MAX_VALUE;
  private long last = Long.MIN_VALUE;

  private OutputBlocks(int bytes, int[] route) {
    this.bytes = bytes;
    this.route = route;
  }

  /** {@code route} has, by destination, the partition of the next layer. */
  static OutputBlocks read(ByteBuffer in, int rows, int count, int[] route) throws BadFrame {
    OutputBlocks read = new OutputBlocks(in.remaining(), route);
    while (in.hasRemaining()) {
      int destination = in.getInt();
      int size = in.getInt();
      if (size < 0 || size > in.remaining()) {
        throw new BadFrame("an OUTPUT with a block of " + size + " bytes, and " + in.remaining() + " are there");
      }
      byte[] block = new byte[size];
      in.get(block);
      read.add(destination, block);
    }
    if (read.blocks.size() != count || read.rows != rows) {
      throw new BadFrame(
          "an OUTPUT of " + rows + " rows in " + count + " blocks has " + read.rows + " in " + read.blocks.size());
    }
    return read;
  }

  private void add(int destination, byte[] bytes) throws BadFrame {
    Block block;
    try {
      block = Block.of(bytes);
    } catch (IllegalArgumentException e) {
      throw new BadFrame("an OUTPUT with " + e.getMessage());
    }
    if (destination < 0 || destination >= route.length) {
      throw new BadFrame("an OUTPUT for destination " + destination + " of " + route.length);
    }
    blocks.add(BlockRow.of(route[destination], bytes));
    if (block.rows() > 0) {
      rows += block.rows();
      first = Math.min(first, block.first());
      last = Math.max(last, block.last());
    }
  }

  int count() {
    return blocks.size();
  }

  int rows() {
    return (int) rows;
  }

  int bytes() {
    return bytes;
  }

  /** The lowest number of its rows, 0 without rows. */
  long first() {
    return rows == 0 ? 0 : first;
  }

  /** The highest number of its rows, 0 without rows. */
  long last() {
    return rows == 0 ? 0 : last;
  }

  InternalRow block(int index) {
    return blocks.get(index);
  }
}
