package org.clonos.spark.conduit;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * The in-flight log: the bundles of a task attempt as complete frames, until a durable snapshot covers
 * them. {@link ConduitProtocol} decides what is spilled; a spilled bundle lies in a segment file of the spill
 * directory, and a segment goes when its last bundle is forgotten. A segment has no name from the moment it is open,
 * so nothing stays behind however the process ends. What is read back is checked before it is sent.
 */
final class InflightLog implements AutoCloseable {
  private static final long SEGMENT_BYTES = 64L << 20;
  private static final Set<StandardOpenOption> OPEN =
      Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE);
  private static final FileAttribute<?> OWNER_ONLY =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private static final class Segment {
    final FileChannel file;
    long bytes;
    long lastSeq;

    Segment(Path path) throws IOException {
      file = FileChannel.open(path, OPEN, OWNER_ONLY);
      Files.delete(path);
    }
  }

  private record Position(Segment segment, long offset, int size) {}

  private final Path directory;
  private final String name;
  private final ConduitMetrics.Of metrics;
  private final Map<Long, byte[]> inMemory = new HashMap<>();
  private final Map<Long, Position> onDisk = new HashMap<>();
  private final ArrayDeque<Segment> segments = new ArrayDeque<>();
  private long bytes;
  private long forgotten;
  private int segmentNumber;

  InflightLog(Path directory, String name, ConduitMetrics.Of metrics) {
    this.directory = directory;
    this.name = name;
    this.metrics = metrics;
  }

  void keep(long seq, byte[] frame) {
    inMemory.put(seq, frame);
    count(frame.length);
  }

  private void count(long more) {
    bytes += more;
    metrics.inflightBytes().inc(more);
  }

  void spill(long seq) throws IOException {
    byte[] frame = inMemory.get(seq);
    Segment segment = segments.peekLast();
    if (segment == null || segment.bytes >= SEGMENT_BYTES) {
      Files.createDirectories(directory);
      segment = new Segment(directory.resolve(name + "-" + segmentNumber++ + ".spill"));
      segments.add(segment);
    }
    ByteBuffer source = ByteBuffer.wrap(frame);
    long offset = segment.bytes;
    while (source.hasRemaining()) {
      segment.file.write(source, offset + source.position());
    }
    segment.bytes += frame.length;
    segment.lastSeq = seq;
    onDisk.put(seq, new Position(segment, offset, frame.length));
    metrics.spilledBytes().inc(frame.length);
    inMemory.remove(seq);
  }

  byte[] frame(long seq) throws IOException {
    byte[] frame = inMemory.get(seq);
    if (frame != null) {
      return frame;
    }
    Position place = onDisk.get(seq);
    ByteBuffer target = ByteBuffer.allocate(place.size());
    while (target.hasRemaining()) {
      if (place.segment().file.read(target, place.offset() + target.position()) < 0) {
        throw new IOException("spilled bundle " + seq + " is cut off in " + directory);
      }
    }
    byte[] read = target.array();
    if (!Frames.intact(read)) {
      throw new IOException("spilled bundle " + seq + " is damaged in " + directory);
    }
    return read;
  }

  void forget(long upto) throws IOException {
    for (long seq = forgotten + 1; seq <= upto; seq++) {
      count(-remove(seq));
    }
    forgotten = upto;
    while (!segments.isEmpty() && segments.peek().lastSeq <= upto) {
      segments.poll().file.close();
    }
  }

  /** The size of what is gone by this. */
  private int remove(long seq) {
    byte[] frame = inMemory.remove(seq);
    if (frame != null) {
      return frame.length;
    }
    Position place = onDisk.remove(seq);
    return place == null ? 0 : place.size();
  }

  @Override
  public void close() throws IOException {
    count(-bytes);
    inMemory.clear();
    onDisk.clear();
    IOException failure = null;
    for (Segment segment : segments) {
      try {
        segment.file.close();
      } catch (IOException e) {
        failure = e;
      }
    }
    segments.clear();
    if (failure != null) {
      throw failure;
    }
  }
}
