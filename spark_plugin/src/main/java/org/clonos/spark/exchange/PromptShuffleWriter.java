package org.clonos.spark.exchange;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import org.apache.spark.util.ErrorNotifier;
import org.clonos.spark.task.BeforeWaiting;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/**
 * Sends what it has gathered as soon as its task would wait for more. Spark's own writer gathers rows until its buffer
 * is full or a timer has run; a block is gathered already, and would only wait.
 */
final class PromptShuffleWriter<K, V> extends StreamingShuffleWriter<K, V> {
  PromptShuffleWriter(ShuffleHandle handle, long mapId, TaskContext task) {
    super(handle, mapId, task, Option.empty(), new ErrorNotifier());
  }

  @Override
  public void write(Iterator<Product2<K, V>> records) {
    BeforeWaiting.run(this::flush, () -> super.write(records));
  }

  private void flush() {
    for (StreamingShuffleWriter<K, V>.ShardState shard : shards()) {
      shard.send();
    }
  }
}
