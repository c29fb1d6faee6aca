package org.clonos.spark.source;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import org.clonos.spark.task.CausalStageException;

/**
 * The embedded log: a directory with {@code _meta.json} (version, number of partitions) and one file {@code <n>.log}
 * per partition. A file is the magic {@code CLNSLOG1} and then entries, little-endian:
 * {@code u32 length, u32 crc32(payload), i64 append time in microseconds, payload}. The position of a record is the
 * byte offset of its entry. An entry that is not complete yet is not there; one that is complete and does not fit its
 * checksum is an error.
 */
final class LogFormat {
  static final byte[] MAGIC = "CLNSLOG1".getBytes(StandardCharsets.US_ASCII);
  static final int ENTRY_HEADER = 16;
  static final int MAX_PAYLOAD = 128 << 20;
  private static final String META = "_meta.json";

  private LogFormat() {}

  /** What has been read is gone; no waiting mends that. */
  static CausalStageException cutOff(Path file, long end, long read) {
    return new CausalStageException(
        "InputError",
        file + " ends at offset " + end + ", but was read up to " + read + " before: the log was cut off. Restore it as"
            + " it was, or begin anew with a new checkpointLocation and a new sink");
  }

  static Path file(String directory, int partition) {
    return Path.of(directory, partition + ".log");
  }

  /**
   * The number of partitions, fixed when the log was created.
   *
   * @param created what it will have, where the query that reads it creates it; 0 where it does not
   */
  static int partitions(String directory, int created) {
    Path meta = Path.of(directory, META);
    if (created > 0 && !Files.exists(meta)) {
      return created;
    }
    JsonNode body;
    try {
      body = new ObjectMapper().readTree(Files.readString(meta));
    } catch (NoSuchFileException e) {
      throw new IllegalArgumentException(
          "there is no embedded log at " + directory + ": " + META + " is missing. Create it with LogWriter first", e);
    } catch (IOException e) {
      throw new IllegalArgumentException("cannot read " + meta + ": " + e.getMessage(), e);
    }
    int version = body.path("version").asInt();
    int partitions = body.path("partitions").asInt();
    if (version != 1 || partitions < 1) {
      throw new IllegalArgumentException(
          meta + " has version " + version + " and " + partitions + " partitions; this source reads version 1");
    }
    return partitions;
  }

  static void checkMagic(Path file, byte[] found) throws IOException {
    if (!Arrays.equals(found, MAGIC)) {
      throw new IOException(file + " is not an embedded log: it begins with other bytes than CLNSLOG1");
    }
  }

  static void checkLength(Path file, long offset, int length) throws IOException {
    if (length < 0 || length > MAX_PAYLOAD) {
      throw new IOException(
          "corrupt entry in " + file + " at offset " + offset + ": length " + Integer.toUnsignedString(length));
    }
  }
}
