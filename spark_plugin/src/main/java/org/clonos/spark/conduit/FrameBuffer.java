package org.clonos.spark.conduit;

import java.util.Arrays;

/** A growing byte array for a payload, behind room for a frame header. */
final class FrameBuffer {
  private byte[] bytes;
  private int size;

  FrameBuffer(int capacity) {
    bytes = new byte[Math.max(capacity, 1024)];
    size = Frames.HEADER;
  }

  void put(byte[] source) {
    reserve(source.length);
    System.arraycopy(source, 0, bytes, size, source.length);
    size += source.length;
  }

  void putInt(int value) {
    reserve(4);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes[size++] = (byte) (value >>> shift);
    }
  }

  void putLong(long value) {
    putInt((int) value);
    putInt((int) (value >>> 32));
  }

  /** The finished frame of this type. */
  byte[] frame(int type) {
    byte[] frame = size == bytes.length ? bytes : Arrays.copyOf(bytes, size);
    Frames.finish(frame, size, type);
    return frame;
  }

  private void reserve(int more) {
    if (size + (long) more > Frames.MAX_LENGTH) {
      throw new IllegalStateException("a bundle is larger than a frame may be (256 MiB)");
    }
    if (size + more > bytes.length) {
      bytes = Arrays.copyOf(bytes, Math.max(size + more, (int) Math.min(bytes.length * 2L, Frames.MAX_LENGTH)));
    }
  }
}
