package org.clonos.spark.executor;

import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Gives each executor a replica service of its own, where {@code spark.clonos.replica.servers} says so: the executor's
 * side keeps a process running, which ends with the executor, and says where it listens; the driver's side keeps a list
 * of that. It is also the way on which tasks ask the driver for the numbers of source channels.
 */
public final class ReplicaPlugin implements SparkPlugin {
  private static final String SERVERS = "spark.clonos.replica.servers";
  private static final String ON_EXECUTORS = "executors";

  /** What the driver's side says to executors; Spark blots out what is called so where it shows settings. */
  static final String TOKEN = "token";

  static final String PYTHON = "python";

  @Override
  public DriverPlugin driverPlugin() {
    return new DriverSide();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorSide();
  }

  static boolean isWanted(SparkConf conf) {
    return conf.get(SERVERS, "").trim().equalsIgnoreCase(ON_EXECUTORS);
  }
}
