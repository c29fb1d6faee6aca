package org.clonos.spark.exchange;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;

/**
 * Spark's shuffle of Real-Time Mode, with writers that do not keep rows back while their task has nothing to do. Named
 * by {@code spark.shuffle.manager.incremental}; queries without causal stages see no difference.
 */
public final class PromptShuffleManager extends StreamingShuffleManager {
  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(
      ShuffleHandle handle, long mapId, TaskContext task, ShuffleWriteMetricsReporter metrics) {
    return new PromptShuffleWriter<>(handle, mapId, task);
  }
}
