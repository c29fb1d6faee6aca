package org.clonos.spark.task;

import org.apache.spark.TaskContext;

/** Of the micro-batch, or real-time batch, that a task works for: its epoch. */
public final class BatchId {
  private static final String PROPERTY = "streaming.sql.batchId";

  private BatchId() {}

  /** {@code what} is what runs in the task, for the message. */
  public static long of(TaskContext task, String what) {
    String batch = task.getLocalProperty(PROPERTY);
    if (batch == null) {
      throw new CausalStageException(
          "QueryDefinitionError", what + " runs outside a streaming query: a causal stage needs a batch id");
    }
    return Long.parseLong(batch);
  }
}
