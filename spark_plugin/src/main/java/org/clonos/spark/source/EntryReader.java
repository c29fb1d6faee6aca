package org.clonos.spark.source;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;

/**
 * Walks over the complete entries of one log file that may still grow. At the end it can be asked again, and reads on
 * as soon as the next entry is complete.
 */
final class EntryReader implements Closeable {
  private static final int CHUNK = 256 << 10;

  private final Path file;
  private final CRC32 crc = new CRC32();
  private FileChannel channel;
  private ByteBuffer buffer = empty(CHUNK);
  private long position;
  private long entryPosition;
  private long appendMicros;
  private int length;

  EntryReader(Path file, long position) {
    this.file = file;
    this.position = Math.max(position, LogFormat.MAGIC.length);
  }

  private static ByteBuffer empty(int capacity) {
    return ByteBuffer.allocate(capacity).order(ByteOrder.LITTLE_ENDIAN).limit(0);
  }

  /** Steps onto the next entry that ends at or before the limit, and checks it; null when there is none yet. */
  byte[] next(long limit) throws IOException {
    if (!step(limit)) {
      return null;
    }
    byte[] payload = new byte[length];
    buffer.get(payload);
    int expected = buffer.getInt(buffer.position() - length - LogFormat.ENTRY_HEADER + 4);
    crc.reset();
    crc.update(payload);
    if ((int) crc.getValue() != expected) {
      throw new IOException(
          "corrupt entry in " + file + " at offset " + entryPosition + ": its checksum does not fit");
    }
    return payload;
  }

  /** Steps over the next entry without looking at its payload. */
  boolean skip(long limit) throws IOException {
    if (!step(limit)) {
      return false;
    }
    buffer.position(buffer.position() + length);
    return true;
  }

  private boolean step(long limit) throws IOException {
    if (position + LogFormat.ENTRY_HEADER > limit || !have(LogFormat.ENTRY_HEADER)) {
      return false;
    }
    int payload = buffer.getInt(buffer.position());
    if (payload == 0 && buffer.getLong(buffer.position() + 8) == 0) {
      return false; // zeros, left by a power failure where bytes were not yet on the disk: they are written again
    }
    LogFormat.checkLength(file, position, payload);
    int size = LogFormat.ENTRY_HEADER + payload;
    if (position + size > limit || !have(size)) {
      return false;
    }
    appendMicros = buffer.getLong(buffer.position() + 8);
    buffer.position(buffer.position() + LogFormat.ENTRY_HEADER);
    length = payload;
    entryPosition = position;
    position += size;
    return true;
  }

  /** Makes {@code count} bytes from the current position available, if the file has them. */
  private boolean have(int count) throws IOException {
    if (buffer.remaining() >= count) {
      return true;
    }
    if (channel == null && !open()) {
      return false;
    }
    long fileOffset = position + buffer.remaining();
    ByteBuffer target = count > buffer.capacity() ? empty(count) : buffer;
    if (target == buffer) {
      buffer.compact();
    } else {
      target.clear();
      target.put(buffer);
    }
    buffer = target;
    int read;
    while (buffer.hasRemaining() && (read = channel.read(buffer, fileOffset)) > 0) {
      fileOffset += read;
    }
    buffer.flip();
    return buffer.remaining() >= count;
  }

  private boolean open() throws IOException {
    if (!Files.exists(file)) {
      if (position > LogFormat.MAGIC.length) {
        throw LogFormat.cutOff(file, 0, position);
      }
      return false;
    }
    FileChannel opened = FileChannel.open(file);
    ByteBuffer magic = ByteBuffer.allocate(LogFormat.MAGIC.length);
    if (opened.read(magic, 0) < magic.capacity()) {
      opened.close();
      return false;
    }
    channel = opened;
    LogFormat.checkMagic(file, magic.array());
    if (opened.size() < position) {
      throw LogFormat.cutOff(file, opened.size(), position);
    }
    return true;
  }

  /** Where the next entry begins. */
  long position() {
    return position;
  }

  /** Where the entry last stepped onto begins. */
  long entryPosition() {
    return entryPosition;
  }

  long appendMicros() {
    return appendMicros;
  }

  @Override
  public void close() throws IOException {
    if (channel != null) {
      channel.close();
    }
  }
}
