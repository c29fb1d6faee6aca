package org.clonos.spark.conduit;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import com.codahale.metrics.Timer;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.source.Source;

/**
 * What the conduits of this JVM do, in Spark's own metrics system: the source {@code clonos}, from which Spark's sinks
 * (JMX, Prometheus, CSV, ...) read. One of it for each session, whose metrics end with it.
 *
 * <p>What replicas do is told by their server; what lies between the two, records that wait and bundles that are kept
 * in case they have to be sent again, the conduits alone know.
 */
public final class ConduitMetrics implements Source {
  static final String NAME = "clonos";

  private static SparkEnv registeredIn;
  private static ConduitMetrics registered;

  private final MetricRegistry registry = new MetricRegistry();

  /** Of one operator, over its instances in this JVM. */
  record Of(
      Counter records,
      Counter bundles,
      Counter outputRecords,
      Counter waitingRecords,
      Counter inflightBytes,
      Counter spilledBytes,
      Timer replacements) {

    /** A replica was lost, and another has taken over. */
    void replaced(long ms) {
      replacements.update(ms, TimeUnit.MILLISECONDS);
    }
  }

  private ConduitMetrics() {}

  /** Those of the session that runs now. */
  static synchronized Of operator(String name) {
    SparkEnv env = SparkEnv.get();
    if (registered == null || registeredIn != env) {
      registered = new ConduitMetrics();
      registeredIn = env;
      if (env != null) {
        env.metricsSystem().registerSource(registered);
      }
    }
    return registered.of(name.replaceAll("[^A-Za-z0-9_-]", "_"));
  }

  private Of of(String operator) {
    return new Of(
        counter(operator, "records"),
        counter(operator, "bundles"),
        counter(operator, "outputRecords"),
        counter(operator, "waitingRecords"),
        counter(operator, "inflightBytes"),
        counter(operator, "spilledBytes"),
        registry.timer(MetricRegistry.name("conduit", operator, "replacements")));
  }

  private Counter counter(String operator, String metric) {
    return registry.counter(MetricRegistry.name("conduit", operator, metric));
  }

  @Override
  public String sourceName() {
    return NAME;
  }

  @Override
  public MetricRegistry metricRegistry() {
    return registry;
  }
}
