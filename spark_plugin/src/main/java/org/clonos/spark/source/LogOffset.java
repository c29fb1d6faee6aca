package org.clonos.spark.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** How far every partition was read: the byte offset where its next entry begins. */
final class LogOffset extends Offset {
  private final long[] positions;

  LogOffset(long[] positions) {
    this.positions = positions.clone();
  }

  static LogOffset parse(String json, int partitions) {
    try {
      JsonNode body = new ObjectMapper().readTree(json);
      JsonNode positions = body.path("positions");
      if (body.path("version").asInt() != 1 || positions.size() != partitions) {
        throw new IllegalArgumentException(
            "the checkpoint holds the offset " + json + ", the log has " + partitions + " partitions");
      }
      long[] parsed = new long[partitions];
      for (int i = 0; i < partitions; i++) {
        parsed[i] = positions.get(i).asLong();
      }
      return new LogOffset(parsed);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("the checkpoint holds an offset that is not JSON: " + json, e);
    }
  }

  long position(int partition) {
    return positions[partition];
  }

  @Override
  public String json() {
    return Arrays.stream(positions)
        .mapToObj(Long::toString)
        .collect(Collectors.joining(",", "{\"version\":1,\"positions\":[", "]}"));
  }
}
