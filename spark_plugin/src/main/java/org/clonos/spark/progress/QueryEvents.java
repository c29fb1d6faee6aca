package org.clonos.spark.progress;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.UUID;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.ProgressReporter;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQueryListener.Event;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryIdleEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryProgressEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryStartedEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener.QueryTerminatedEvent;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.util.CollectionAccumulator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.mutable.Queue;

/**
 * Stands between the queries of Spark that run for a causal query, one after the other, and the listeners of the user's
 * session. They hear of one query: it starts once, has one run, tells the progress of a causal query, and terminates when
 * the causal query does. The progress is kept across restarts, as much of it as Spark keeps.
 */
public final class QueryEvents extends StreamingQueryListenerBus {
  private static final Logger LOG = LoggerFactory.getLogger(QueryEvents.class);

  private final SparkSession user;
  private final StreamingQueryListenerBus listeners;
  private final int kept;
  private final Reports reports;
  private final CausalProgress progress;
  private final Dataflow dataflow;
  private final Field sparksOwn;
  private final Deque<StreamingQueryProgress> recent = new ArrayDeque<>();
  private SourcesFile sources;
  private UUID id;
  private UUID runId;
  private boolean terminated;
  private long restarts;

  /** {@code listeners} are those of the user's session; {@code dataflow} is a text of JSON ({@link Dataflow}). */
  public QueryEvents(SparkSession user, StreamingQueryListenerBus listeners, String dataflow)
      throws ReflectiveOperationException {
    super(Option.empty());
    this.user = user;
    this.listeners = listeners;
    kept = user.sessionState().conf().streamingProgressRetention();
    reports = new Reports(user.sparkContext());
    this.dataflow = Dataflow.parse(dataflow);
    progress = new CausalProgress(this.dataflow);
    sparksOwn = ProgressReporter.class.getDeclaredField("progressBuffer");
    sparksOwn.setAccessible(true);
  }

  /** What conduits add their reports to. */
  public CollectionAccumulator<String> accumulator() {
    return reports.accumulator();
  }

  /** From now on what is said of the sources is kept in this file, too. */
  public synchronized void keepSources(String file) {
    sources = new SourcesFile(Path.of(file), dataflow.sources());
  }

  /** The one run of the causal query: that of Spark's first query for it. Null before it has started. */
  public synchronized String runId() {
    return runId == null ? null : runId.toString();
  }

  public synchronized StreamingQueryProgress last() {
    return recent.peekLast();
  }

  public synchronized StreamingQueryProgress[] recent() {
    return recent.toArray(StreamingQueryProgress[]::new);
  }

  @Override
  public void post(Event event) {
    if (event instanceof QueryStartedEvent started) {
      started(started);
    } else if (event instanceof QueryProgressEvent told) {
      listeners.post(new QueryProgressEvent(progressed(told.progress())));
    } else if (event instanceof QueryIdleEvent idle) {
      listeners.post(new QueryIdleEvent(idle.id(), runId, idle.timestamp()));
    } // that a query of Spark's has terminated is the end of the causal query only where that says so
  }

  private void started(QueryStartedEvent started) {
    synchronized (this) {
      if (runId != null) {
        restarts++;
        keepInSpark(started.id(), null);
        return;
      }
      id = started.id();
      runId = started.runId();
    }
    listeners.post(started); // without the lock: listeners are called at once, and may ask for the progress
  }

  private synchronized StreamingQueryProgress progressed(StreamingQueryProgress batch) {
    StreamingQueryProgress told;
    try {
      told = progress.of(batch, runId, reports.take(batch.batchId()), restarts);
    } catch (RuntimeException e) { // no reason for the query to fail
      LOG.warn("query {}: the progress of batch {} is told as Spark knows it", id, batch.batchId(), e);
      told = batch;
    }
    restarts = 0;
    keepSources(told);
    recent.addLast(told);
    while (recent.size() > kept) {
      recent.removeFirst();
    }
    keepInSpark(batch.id(), batch);
    return told;
  }

  private void keepSources(StreamingQueryProgress told) {
    try {
      if (sources != null) {
        sources.write(told.sources());
      }
    } catch (IOException | RuntimeException e) { // no reason for the query to fail
      LOG.warn("query {}: what batch {} says of the sources is not kept: {}", id, told.batchId(), e.toString());
    }
  }

  /**
   * Puts what is kept in place of what Spark keeps itself, so that the handles of {@code spark.streams} say the same.
   * {@code batch} is what Spark has just added.
   */
  @SuppressWarnings("unchecked")
  private void keepInSpark(UUID query, StreamingQueryProgress batch) {
    if (!(user.streams().get(query) instanceof StreamingQueryWrapper running)) {
      return; // it has terminated meanwhile
    }
    try {
      Object buffer = sparksOwn.get(running.streamingQuery().progressReporter());
      synchronized (buffer) {
        Queue<StreamingQueryProgress> queue = (Queue<StreamingQueryProgress>) buffer;
        if (batch == null || (queue.nonEmpty() && queue.last() == batch)) {
          queue.clear();
          recent.forEach(queue::addOne);
        }
      }
    } catch (IllegalAccessException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** The causal query is over, by this error if any. */
  public void terminated(String error, String condition) {
    synchronized (this) {
      if (terminated) {
        return;
      }
      terminated = true;
    }
    reports.close();
    if (runId != null) {
      listeners.post(new QueryTerminatedEvent(id, runId, Option.apply(error), Option.apply(condition)));
    }
  }
}
