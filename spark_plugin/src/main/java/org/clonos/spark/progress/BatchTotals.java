package org.clonos.spark.progress;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.Stream;

/**
 * What a progress tells of the instances of a query. What they have done is that of the epoch; of each the last attempt
 * counts, for Spark may run a task again that has ended, and may tell of the first one last. Recoveries are those since
 * the progress before, in all attempts.
 */
final class BatchTotals {
  private static final long UNKNOWN = -1;

  private final Map<Integer, Map<Integer, InstanceReport>> ended = new HashMap<>();
  private final Map<Integer, long[]> recoveries = new HashMap<>();

  void ended(InstanceReport report) {
    ended
        .computeIfAbsent(report.node(), node -> new HashMap<>())
        .merge(report.instance(), report, (one, other) -> other.attempt() < one.attempt() ? one : other);
  }

  void recovered(InstanceReport report) {
    long[] counted = recoveries.computeIfAbsent(report.node(), node -> new long[2]);
    counted[0] += report.replaced();
    counted[1] += report.promoted();
  }

  /** How many replicas of a node new processes have replaced. */
  long replaced(int node) {
    return recoveries.getOrDefault(node, new long[2])[0];
  }

  /** How many standbys of a node have taken over. */
  long promoted(int node) {
    return recoveries.getOrDefault(node, new long[2])[1];
  }

  long replaced() {
    return recoveries.values().stream().mapToLong(counted -> counted[0]).sum();
  }

  long promoted() {
    return recoveries.values().stream().mapToLong(counted -> counted[1]).sum();
  }

  /** Of an operator, a figure that its replicas tell; -1 where some of them has not been heard. */
  long sum(Dataflow.Operator operator, String figure) {
    return sum(operator, work -> work.path(figure).asLong());
  }

  /** Rows that an operator has sent to all of its readers together; -1 where that is not known. */
  long sent(Dataflow.Operator operator) {
    return sum(operator, work -> stream(work.path("sent")).mapToLong(JsonNode::asLong).sum());
  }

  /** Rows that came to a sink; -1 where that is not known. */
  long rows(Dataflow.Sink sink, List<Dataflow.Operator> operators) {
    Map<Integer, InstanceReport> reports = ended.getOrDefault(sink.node(), Map.of());
    long rows = reports.size() < sink.parallelism() ? UNKNOWN : 0;
    for (int node : sink.upstream()) {
      long more =
          operators.stream()
              .filter(operator -> operator.node() == node)
              .findFirst()
              // In real time a sink gets, in a second attempt, only what it has not had. Its sender counts all.
              .map(operator -> sum(operator, work -> sentTo(work, operator.readers().indexOf(sink.node()))))
              .orElseGet(() -> reports.values().stream().mapToLong(report -> report.received()[node]).sum());
      rows = rows == UNKNOWN || more == UNKNOWN ? UNKNOWN : rows + more;
    }
    return rows;
  }

  /** In microseconds since 1970, where the epoch began: the earliest of all instances, 0 where one has none. */
  long watermark(List<Dataflow.Operator> operators) {
    return operators.stream()
        .flatMap(operator -> ended.getOrDefault(operator.node(), Map.of()).values().stream())
        .mapToLong(report -> report.work().path("watermark").asLong(0))
        .min()
        .orElse(0);
  }

  private long sum(Dataflow.Operator operator, ToLongFunction<JsonNode> figure) {
    Map<Integer, InstanceReport> reports = ended.getOrDefault(operator.node(), Map.of());
    return reports.size() < operator.parallelism()
        ? UNKNOWN
        : reports.values().stream().map(InstanceReport::work).mapToLong(figure).sum();
  }

  /** There are none before the first row. */
  private static long sentTo(JsonNode work, int reader) {
    return work.path("sent").path(reader).asLong(0);
  }

  private static Stream<JsonNode> stream(JsonNode array) {
    Stream.Builder<JsonNode> each = Stream.builder();
    array.forEach(each);
    return each.build();
  }
}
