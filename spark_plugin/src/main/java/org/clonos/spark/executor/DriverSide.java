package org.clonos.spark.executor;

import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Gives executors the token, keeps the list of what they answer, and hands their questions on. */
final class DriverSide implements DriverPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(DriverSide.class);
  private static final int TOKEN_BYTES = 16;

  /** So long a successor of a lost executor is expected on its host. */
  private static final long KEPT_MILLIS = 60_000;

  private Services services;

  @Override
  public Map<String, String> init(SparkContext spark, PluginContext context) {
    SparkConf conf = context.conf();
    ChannelNumbers.connect(Numbering::ask); // of constant expressions, which Spark computes in the driver
    if (spark.isLocal() || !ReplicaPlugin.isWanted(conf)) {
      return Map.of();
    }
    byte[] random = new byte[TOKEN_BYTES];
    new SecureRandom().nextBytes(random);
    String token = HexFormat.of().formatHex(random);
    services = new Services(token, KEPT_MILLIS);
    Services.publish(services);
    spark.addSparkListener(new Executors(services));
    Map<String, String> said = new HashMap<>();
    said.put(ReplicaPlugin.TOKEN, token);
    said.put(ReplicaPlugin.PYTHON, python(conf));
    return said;
  }

  /** As Spark chooses it for its own Python workers: the driver's choice holds on all hosts. */
  private static String python(SparkConf conf) {
    String chosen = conf.get("spark.pyspark.python", System.getenv().getOrDefault("PYSPARK_PYTHON", ""));
    return chosen.isBlank() ? "python3" : chosen;
  }

  @Override
  public Object receive(Object said) {
    Message message = Message.read(said);
    String executor = "executor " + message.executor() + " on " + message.host();
    switch (message.kind()) {
      case WHERE:
        return services.settle(message.executor(), message.host());
      case UP:
        LOG.info("{} has a replica service at port {}", executor, message.text());
        services.up(message.executor(), message.host(), Integer.parseInt(message.text()));
        return null;
      case DOWN:
        LOG.warn("{} is without its replica service: {}", executor, message.text());
        services.down(message.executor(), message.host(), message.text());
        return null;
      case NUMBER:
        return number(message.text());
    }
    return null;
  }

  private static String[] number(String text) {
    String[] asked = text.split(" ", 3);
    try {
      return Numbering.ask(asked[0], asked[2], Long.parseLong(asked[1]));
    } catch (InterruptedException ends) {
      Thread.currentThread().interrupt();
      return new String[] {"StorageUnavailable", "the driver ends", ""};
    }
  }

  @Override
  public void shutdown() {
    if (services != null && services == Services.current()) {
      Services.publish(null);
    }
  }

  private static final class Executors extends SparkListener {
    private final Services services;

    Executors(Services services) {
      this.services = services;
    }

    @Override
    public void onExecutorAdded(SparkListenerExecutorAdded added) {
      services.added(added.executorId(), added.executorInfo().executorHost());
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
      services.removed(removed.executorId());
    }
  }
}
