package org.clonos.spark.conduit;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ReadableByteChannel;

/**
 * Cuts the byte stream of a non-blocking channel into checked frames. {@link #fill} reads what is there;
 * {@link #next} hands out complete frames one by one.
 */
final class FrameReader {
  /** A checked frame. */
  record Frame(int type, ByteBuffer payload) {}

  private static final int CHUNK = 256 << 10;

  private final ByteBuffer chunk = ByteBuffer.allocateDirect(CHUNK);
  private byte[] bytes = new byte[CHUNK];
  private int from;
  private int to;

  /** Reads once; returns the number of bytes read, or -1 at the end of the stream. */
  int fill(ReadableByteChannel channel) throws IOException {
    chunk.clear();
    int read = channel.read(chunk);
    if (read > 0) {
      reserve(read);
      chunk.flip();
      chunk.get(bytes, to, read);
      to += read;
    }
    return read;
  }

  private void reserve(int more) {
    if (to + more <= bytes.length) {
      return;
    }
    int held = to - from;
    byte[] target = held + more <= bytes.length ? bytes : new byte[Math.max(bytes.length * 2, held + more)];
    System.arraycopy(bytes, from, target, 0, held);
    bytes = target;
    from = 0;
    to = held;
  }

  /** The next complete frame, whose payload is a copy; null when more bytes are needed. */
  Frame next() throws BadFrame {
    if (to - from < Frames.HEADER) {
      return null;
    }
    ByteBuffer view = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    int length = view.getInt(from);
    if (length < Frames.HEADER - 4 || length > Frames.MAX_LENGTH) {
      throw new BadFrame("a frame of length " + Integer.toUnsignedString(length));
    }
    if (to - from < 4 + length) {
      return null;
    }
    int type = bytes[from + 4];
    int payload = length - (Frames.HEADER - 4);
    int start = from + Frames.HEADER;
    if (Frames.checksum(type, bytes, start, payload) != view.getInt(from + 5)) {
      throw new BadFrame("a frame of type " + type + " and length " + length + " with a wrong checksum");
    }
    byte[] copy = new byte[payload];
    System.arraycopy(bytes, start, copy, 0, payload);
    from += 4 + length;
    return new Frame(type, ByteBuffer.wrap(copy).order(ByteOrder.LITTLE_ENDIAN));
  }
}
