package org.clonos.spark.conduit;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;

/**
 * Frames of the conduit wire: {@code u32 length, u8 type, u32 crc32(type, payload), payload}, little-endian; length
 * counts what follows it.
 */
final class Frames {
  /** Of the wire: both ends say it first, and refuse another one. */
  static final int VERSION = 7;

  static final int HELLO = 1;
  static final int RESUME = 2;
  static final int WELCOME = 3;
  static final int BUNDLE = 4;
  static final int TICK = 5;
  static final int END = 6;
  static final int OUTPUT = 7;
  static final int CHECKPOINTED = 8;
  static final int ENDED = 9;
  static final int HEARTBEAT = 10;
  static final int ERROR = 11;
  static final int FOLLOW = 12;
  static final int PROMOTE = 13;
  static final int FLUSH_LOG = 14;
  static final int LOG_FLUSHED = 15;
  static final int PASSED_OVER = 16;

  static final int HEADER = 9;
  static final int MAX_LENGTH = 256 << 20;

  private Frames() {}

  /** A frame around a payload. */
  static byte[] frame(int type, byte[] payload) {
    byte[] frame = new byte[HEADER + payload.length];
    System.arraycopy(payload, 0, frame, HEADER, payload.length);
    finish(frame, frame.length, type);
    return frame;
  }

  /** Of a frame whose payload is one number. */
  static byte[] frame(int type, long number) {
    return frame(type, ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(number).array());
  }

  /** Writes the header of a frame whose payload stands in place after {@link #HEADER} bytes. */
  static void finish(byte[] frame, int size, int type) {
    ByteBuffer header = ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN);
    header.putInt(0, size - 4);
    header.put(4, (byte) type);
    header.putInt(5, checksum(type, frame, HEADER, size - HEADER));
  }

  /** Whether a complete frame still fits its checksum. */
  static boolean intact(byte[] frame) {
    int expected = ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN).getInt(5);
    return checksum(frame[4], frame, HEADER, frame.length - HEADER) == expected;
  }

  static int checksum(int type, byte[] bytes, int from, int length) {
    CRC32 crc = new CRC32();
    crc.update(type);
    crc.update(bytes, from, length);
    return (int) crc.getValue();
  }
}
