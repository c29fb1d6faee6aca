package org.clonos.spark.progress;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;

/**
 * What of a query's operators and sinks its progress tells; the driver says it when the query is started. {@code sources}
 * are the nodes of Spark's sources, in the order of the plan.
 */
record Dataflow(List<Operator> operators, List<Sink> sinks, List<Integer> sources) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** {@code readers} are the nodes that its rows go to, in the order in which it counts them. */
  record Operator(int node, String name, int parallelism, List<Integer> readers, boolean hasEventTime) {}

  record Sink(int node, String name, int parallelism, List<Integer> upstream) {}

  static Dataflow parse(String text) {
    JsonNode said;
    try {
      said = JSON.readTree(text);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("the dataflow's description is not JSON: " + e.getOriginalMessage());
    }
    List<Operator> operators = new ArrayList<>();
    for (JsonNode each : said.path("operators")) {
      operators.add(
          new Operator(
              each.path("node").asInt(),
              each.path("name").asText(),
              each.path("parallelism").asInt(),
              numbers(each.path("readers")),
              each.path("event_time").asBoolean()));
    }
    List<Sink> sinks = new ArrayList<>();
    for (JsonNode each : said.path("sinks")) {
      sinks.add(
          new Sink(
              each.path("node").asInt(),
              each.path("name").asText(),
              each.path("parallelism").asInt(),
              numbers(each.path("upstream"))));
    }
    return new Dataflow(operators, sinks, numbers(said.path("sources")));
  }

  private static List<Integer> numbers(JsonNode said) {
    List<Integer> numbers = new ArrayList<>();
    said.forEach(number -> numbers.add(number.asInt()));
    return numbers;
  }
}
