package org.clonos.spark;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.StreamingQuery;
import org.apache.spark.sql.classic.StreamingQueryManager;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus;
import org.apache.spark.sql.streaming.StreamingQueryException;
import org.clonos.spark.progress.QueryEvents;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * The session in which a causal query runs: a copy of the user's, as it was when the query was started. A stream of
 * Spark's own keeps the settings that it was started with, and a causal query that is restarted by itself has to do so,
 * too; and what it sets for itself is not seen by other queries.
 *
 * <p>To the user the query is one of his session: it is among {@code spark.streams.active}, and his listeners hear of it,
 * by {@link QueryEvents}. Spark has no way to say that, so the copy's manager of streams is given what the user's keeps of
 * them. What the user waits for with {@code awaitAnyTermination} stays apart: a restart is not the end of a query.
 */
public final class QuerySession {
  private static final String LISTENERS = "listenerBus";
  private static final String AWAITED = "awaitTerminationLock";
  private static final List<String> SHARED = List.of("activeQueries", "activeQueriesSharedLock", AWAITED);

  private final SparkSession user;
  private final SparkSession copy;
  private final QueryEvents events;

  /** {@code dataflow} is what the progress tells of ({@link QueryEvents}). */
  public QuerySession(org.apache.spark.sql.SparkSession session, String dataflow)
      throws ReflectiveOperationException {
    user = (SparkSession) session;
    copy = user.cloneSession();
    for (String name : SHARED) {
      field(name).set(copy.streams(), field(name).get(user.streams()));
    }
    Field bus = field(LISTENERS);
    // What the copy would have told its own listeners with stays in Spark's bus of events otherwise.
    user.sparkContext().listenerBus().removeListener((SparkListenerInterface) bus.get(copy.streams()));
    events = new QueryEvents(user, (StreamingQueryListenerBus) bus.get(user.streams()), dataflow);
    bus.set(copy.streams(), events);
  }

  private static Field field(String name) throws ReflectiveOperationException {
    Field field = StreamingQueryManager.class.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  /** The copy. */
  public SparkSession session() {
    return copy;
  }

  public QueryEvents events() {
    return events;
  }

  /** The Dataset in another session, which decides on the settings that it is run with. */
  public static Dataset<Row> moved(Dataset<Row> given, org.apache.spark.sql.SparkSession to) {
    return org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(
        (SparkSession) to, Plans.classic(given).logicalPlan());
  }

  /**
   * The causal query is over, with the last one of Spark's that ran for it; where it has failed, by this error, under
   * Spark's condition.
   */
  public void ended(StreamingQuery last, String error, String condition) throws ReflectiveOperationException {
    synchronized (field(AWAITED).get(user.streams())) { // who waits sees the error, not what Spark's last query had
      user.streams().notifyQueryTermination(last);
      if (error != null) {
        // Spark 4.1 cannot write one that has no cause.
        Throwable cause = last.exception().isEmpty() ? new IllegalStateException(error) : last.exception().get();
        field("lastTerminatedQueryException")
            .set(
                user.streams(),
                Option.apply(new StreamingQueryException(error, cause, condition, Map$.MODULE$.empty())));
      }
    }
    events.terminated(error, condition);
  }
}
