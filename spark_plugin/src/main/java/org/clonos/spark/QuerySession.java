package org.clonos.spark;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.StreamingQuery;
import org.apache.spark.sql.classic.StreamingQueryManager;

/**
 * The session in which a causal query runs: a copy of the user's, as it was when the query was started. A stream of
 * Spark's own keeps the settings that it was started with, and a causal query that is restarted by itself has to do so,
 * too; and what it sets for itself is not seen by other queries.
 *
 * <p>To the user the query is one of his session: it is among {@code spark.streams.active}, and his listeners hear of it.
 * Spark has no way to say that, so the copy's manager of streams is given what the user's keeps of them. What the user
 * waits for with {@code awaitAnyTermination} stays apart: a restart is not the end of a query.
 */
public final class QuerySession {
  private static final String LISTENERS = "listenerBus";
  private static final List<String> SHARED =
      List.of(LISTENERS, "activeQueries", "activeQueriesSharedLock", "awaitTerminationLock");

  private QuerySession() {}

  public static SparkSession copyOf(org.apache.spark.sql.SparkSession user) throws ReflectiveOperationException {
    SparkSession session = (SparkSession) user;
    SparkSession copy = session.cloneSession();
    for (String name : SHARED) {
      Field field = StreamingQueryManager.class.getDeclaredField(name);
      field.setAccessible(true);
      if (name.equals(LISTENERS)) {
        // What the copy would have told its own listeners with stays in Spark's bus of events otherwise.
        session.sparkContext().listenerBus().removeListener((SparkListenerInterface) field.get(copy.streams()));
      }
      field.set(copy.streams(), field.get(session.streams()));
    }
    return copy;
  }

  /** The Dataset in another session, which decides on the settings that it is run with. */
  public static Dataset<Row> moved(Dataset<Row> given, org.apache.spark.sql.SparkSession to) {
    return org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(
        (SparkSession) to, Plans.classic(given).logicalPlan());
  }

  /** The causal query is over, with the last one of Spark's that ran for it. */
  public static void ended(org.apache.spark.sql.SparkSession user, StreamingQuery last) {
    ((SparkSession) user).streams().notifyQueryTermination(last);
  }
}
