package org.clonos.spark.executor;

import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;

/** Keeps a replica service beside the executor. Whatever becomes of it, the executor does not mind. */
final class ExecutorSide implements ExecutorPlugin {
  private ServiceKeeper keeper;

  @Override
  public void init(PluginContext context, Map<String, String> said) {
    if (said.containsKey(ReplicaPlugin.TOKEN)) {
      SparkConf conf = context.conf();
      ServiceCommand command =
          new ServiceCommand(
              said.get(ReplicaPlugin.PYTHON),
              SparkEnv.get().blockManager().blockManagerId().host(), // as conduits call this host
              conf,
              said.get(ReplicaPlugin.TOKEN));
      keeper = new ServiceKeeper(command, context);
      keeper.start();
    }
  }

  @Override
  public void shutdown() {
    if (keeper != null) {
      keeper.close();
    }
  }
}
