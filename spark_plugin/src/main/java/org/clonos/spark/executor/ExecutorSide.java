package org.clonos.spark.executor;

import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;

/**
 * Keeps a replica service beside the executor, whatever becomes of it, and knows the way to the driver for tasks that
 * meet a source channel without a number.
 */
final class ExecutorSide implements ExecutorPlugin {
  private ServiceKeeper keeper;

  @Override
  public void init(PluginContext context, Map<String, String> said) {
    ChannelNumbers.connect((table, name, known) -> asked(context, table + " " + known + " " + name));
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

  private static String[] asked(PluginContext context, String text) throws Exception {
    Message message = new Message(Message.Kind.NUMBER, context.executorID(), context.hostname(), text);
    return (String[]) context.ask(message.toStrings());
  }

  @Override
  public void shutdown() {
    if (keeper != null) {
      keeper.close();
    }
  }
}
