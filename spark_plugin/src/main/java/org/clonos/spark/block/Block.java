package org.clonos.spark.block;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;

/**
 * The header of a block: what one sender sends to one destination at a time. Conduits read nothing else of it; the layout
 * is that of docs/wire.md. Only the replica that decodes the rows checks the checksum, which covers them.
 */
public final class Block {
  static final int VERSION = 0xB1;
  static final int ROWS = 1;
  static final int ARROW = 1;
  static final int CHECKED_FROM = 8;
  public static final int HEADER = 56;
  private static final int FIRST = 24;
  private static final int LAST = 32;
  private static final int COUNT = 40;

  private final ByteBuffer bytes;

  private Block(byte[] bytes) {
    this.bytes = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Throws IllegalArgumentException where the bytes cannot be a block of rows. */
  public static Block of(byte[] bytes) {
    if (bytes.length < HEADER || (bytes[0] & 0xFF) != VERSION || bytes[1] != ROWS) {
      throw new IllegalArgumentException(
          "a block of " + bytes.length + " bytes that begins otherwise than one of format " + VERSION + " does");
    }
    Block block = new Block(bytes);
    if (block.rows() < 1) {
      throw new IllegalArgumentException("a block of " + block.rows() + " rows");
    }
    return block;
  }

  public int rows() {
    return bytes.getInt(COUNT);
  }

  /** The number of its first row. */
  public long first() {
    return bytes.getLong(FIRST);
  }

  /** The number of its last row. */
  public long last() {
    return bytes.getLong(LAST);
  }

  static int checksum(byte[] block) {
    CRC32 crc = new CRC32();
    crc.update(block, CHECKED_FROM, block.length - CHECKED_FROM);
    return (int) crc.getValue();
  }
}
