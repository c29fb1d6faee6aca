package org.clonos.spark.block;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;

/**
 * The header of a block: what one sender sends to one destination at a time. Conduits read nothing else of it; the
 * layout is that of docs/wire.md. Only the replica that decodes the rows checks the checksum, which covers them. A
 * block of a watermark has no rows, nor has the marker of a round.
 */
public final class Block {
  static final int VERSION = 0xB3;
  static final int ROWS = 1;
  static final int WATERMARK = 2;
  static final int MARKER = 3;
  static final int ARROW = 1;
  static final int CHECKSUM = 4;
  public static final int HEADER = 72;

  /** In the place of a watermark: there is none. */
  public static final long NO_WATERMARK = Long.MIN_VALUE;

  private static final long NO_ROW = -1;
  private static final long NODE_MAX = 63;
  private static final int EPOCH = 8;
  private static final int SENDER = 16;
  private static final int FIRST = 24;
  private static final int LAST = 32;
  private static final int COUNT = 40;
  private static final int MARK = 56;

  private final ByteBuffer bytes;

  private Block(byte[] bytes) {
    this.bytes = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Throws IllegalArgumentException where the bytes cannot be a block. */
  public static Block of(byte[] bytes) {
    if (bytes.length < HEADER || (bytes[0] & 0xFF) != VERSION || bytes[1] < ROWS || bytes[1] > MARKER) {
      throw new IllegalArgumentException(
          "a block of " + bytes.length + " bytes that begins otherwise than one of format " + VERSION + " does");
    }
    Block block = new Block(bytes);
    if (bytes[1] == ROWS ? block.rows() < 1 : block.rows() != 0) {
      throw new IllegalArgumentException("a block of kind " + bytes[1] + " and " + block.rows() + " rows");
    }
    return block;
  }

  /** A block without rows, for a destination that gets none to carry the watermark. */
  public static byte[] watermark(long epoch, long sender, long watermark) {
    // What is not written is 0: the encoding, the width of a number, and every count of rows and bytes.
    ByteBuffer out = ByteBuffer.allocate(HEADER).order(ByteOrder.LITTLE_ENDIAN);
    out.put((byte) VERSION).put((byte) WATERMARK);
    out.putLong(EPOCH, epoch).putLong(SENDER, sender).putLong(FIRST, NO_ROW).putLong(LAST, NO_ROW);
    out.putLong(MARK, watermark);
    byte[] block = out.array();
    out.putInt(CHECKSUM, checksum(block));
    return block;
  }

  /** The node that it comes from, which stands in the low bits of the channel. */
  public int node() {
    return (int) (bytes.getLong(SENDER) & NODE_MAX);
  }

  public int rows() {
    return bytes.getInt(COUNT);
  }

  /** The number of its first row; -1 where it has none. */
  public long first() {
    return bytes.getLong(FIRST);
  }

  /** The number of its last row; -1 where it has none. */
  public long last() {
    return bytes.getLong(LAST);
  }

  static int checksum(byte[] block) {
    CRC32 crc = new CRC32();
    crc.update(block, EPOCH, block.length - EPOCH);
    return (int) crc.getValue();
  }
}
