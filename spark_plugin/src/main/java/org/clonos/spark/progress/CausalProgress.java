package org.clonos.spark.progress;

import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.GenericRowWithSchema;
import org.apache.spark.sql.streaming.SinkProgress;
import org.apache.spark.sql.streaming.SourceProgress;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.clonos.spark.release.SparkCalls;
import org.clonos.spark.source.TickStream;

/**
 * The progress of a causal query: what Spark says of a batch, with what Spark cannot know, since all that it sees are
 * blocks: rows at sinks, what operators have done, recoveries.
 */
final class CausalProgress {
  /** Under this name recoveries stand among the observed metrics. */
  static final String OBSERVED = "clonos";

  private static final StructType RECOVERIES =
      new StructType()
          .add("numRestarts", DataTypes.LongType, false)
          .add("numReplicasReplaced", DataTypes.LongType, false)
          .add("numStandbysPromoted", DataTypes.LongType, false);
  private static final DateTimeFormatter TIME =
      DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

  private final Dataflow dataflow;

  CausalProgress(Dataflow dataflow) {
    this.dataflow = dataflow;
  }

  StreamingQueryProgress of(StreamingQueryProgress batch, UUID runId, BatchTotals totals, long restarts) {
    Map<String, Row> observed = new HashMap<>(batch.observedMetrics());
    Object[] recoveries = {restarts, totals.replaced(), totals.promoted()};
    observed.put(OBSERVED, new GenericRowWithSchema(recoveries, RECOVERIES));
    return new StreamingQueryProgress(
        batch.id(),
        runId,
        batch.name(),
        batch.timestamp(),
        batch.batchId(),
        batch.batchDuration(),
        batch.durationMs(),
        eventTime(batch, totals),
        dataflow.operators().stream()
            .map(operator -> operator(operator, totals))
            .toArray(StateOperatorProgress[]::new),
        Arrays.stream(batch.sources()).filter(CausalProgress::hasRows).toArray(SourceProgress[]::new),
        sink(totals),
        observed);
  }

  private Map<String, String> eventTime(StreamingQueryProgress batch, BatchTotals totals) {
    var timed = dataflow.operators().stream().filter(Dataflow.Operator::hasEventTime).toList();
    if (timed.isEmpty()) {
      return batch.eventTime();
    }
    Map<String, String> said = new HashMap<>(batch.eventTime());
    said.put("watermark", TIME.format(Instant.ofEpochMilli(Math.floorDiv(totals.watermark(timed), 1000L))));
    return said;
  }

  /** A source of ticks never has any. */
  private static boolean hasRows(SourceProgress source) {
    return !source.description().equals(TickStream.DESCRIPTION);
  }

  private StateOperatorProgress operator(Dataflow.Operator operator, BatchTotals totals) {
    Map<String, Long> custom = new LinkedHashMap<>();
    custom.put("numInputRows", totals.sum(operator, "consumed"));
    custom.put("numOutputRows", totals.sent(operator));
    custom.put("numReplicasReplaced", totals.replaced(operator.node()));
    custom.put("numStandbysPromoted", totals.promoted(operator.node()));
    return SparkCalls.operatorProgress(
        operator.name(),
        totals.sum(operator, "entries"),
        totals.sum(operator, "updated"),
        totals.sum(operator, "removed"),
        totals.sum(operator, "dropped"),
        operator.parallelism(),
        custom);
  }

  private SinkProgress sink(BatchTotals totals) {
    Map<String, String> metrics = new LinkedHashMap<>();
    long all = 0;
    for (Dataflow.Sink sink : dataflow.sinks()) {
      long rows = totals.rows(sink, dataflow.operators());
      metrics.put(sink.name() + ".numOutputRows", Long.toString(rows));
      all = rows < 0 || all < 0 ? SinkProgress.DEFAULT_NUM_OUTPUT_ROWS() : all + rows;
    }
    String names = dataflow.sinks().stream().map(Dataflow.Sink::name).collect(Collectors.joining(", "));
    return new SinkProgress("clonos[" + names + "]", all, metrics);
  }
}
