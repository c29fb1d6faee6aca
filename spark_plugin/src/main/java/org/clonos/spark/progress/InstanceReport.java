package org.clonos.spark.progress;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;

/**
 * What the conduit of an instance tells the driver when its task attempt is over: one text of JSON, in an accumulator.
 *
 * <p>{@code attempt} is Spark's number of the task attempt; {@code ended} is whether the instance has come to the end of
 * the epoch; {@code work} what its replica has told of it then (docs/wire.md), null of a sink; {@code received} by node how
 * many rows have come from there in this attempt.
 */
public record InstanceReport(
    long epoch,
    int node,
    int instance,
    long attempt,
    boolean ended,
    JsonNode work,
    long[] received,
    int replaced,
    int promoted) {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int NODES = 64;

  /** For so many rows by node as a node may have a number. */
  public static long[] nothingReceived() {
    return new long[NODES];
  }

  public String encode() {
    ObjectNode said = JSON.createObjectNode();
    said.put("epoch", epoch).put("node", node).put("instance", instance).put("attempt", attempt).put("ended", ended);
    said.set("work", work);
    said.put("replaced", replaced).put("promoted", promoted);
    Arrays.stream(received).forEach(said.putArray("received")::add);
    return said.toString();
  }

  static InstanceReport decode(String text) {
    try {
      JsonNode said = JSON.readTree(text);
      long[] received = nothingReceived();
      for (int node = 0; node < NODES; node++) {
        received[node] = said.get("received").get(node).asLong();
      }
      return new InstanceReport(
          said.get("epoch").asLong(),
          said.get("node").asInt(),
          said.get("instance").asInt(),
          said.get("attempt").asLong(),
          said.get("ended").asBoolean(),
          said.get("work").isNull() ? null : said.get("work"),
          received,
          said.get("replaced").asInt(),
          said.get("promoted").asInt());
    } catch (JsonProcessingException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
