package org.clonos.spark.conduit;

import org.apache.spark.TaskContext;

/** Which instance of which operator works on which epoch, in which attempt. */
record TaskIdentity(
    String operator, int node, int instance, long epoch, long taskAttemptId, int stageAttempt, int taskAttempt) {
  private static final String BATCH_ID = "streaming.sql.batchId";

  /** {@code partition} is that of the stage's own rows, or null where it is the task's. */
  static TaskIdentity of(TaskContext task, StageSpec spec, Integer partition) {
    String batch = task.getLocalProperty(BATCH_ID);
    if (batch == null) {
      throw new CausalStageException(
          "QueryDefinitionError",
          "operator '" + spec.name() + "' runs outside a streaming query: a causal stage needs a batch id");
    }
    int instance = partition == null ? task.partitionId() : partition;
    boolean fits =
        partition == null
            ? task.numPartitions() == spec.parallelism()
            : instance < spec.parallelism() && task.numPartitions() >= spec.parallelism();
    if (!fits) {
      throw new CausalStageException(
          "ConfigurationError",
          "operator '" + spec.name() + "' was compiled for " + spec.parallelism() + " instances, Spark runs "
              + task.numPartitions() + " partitions: its input was repartitioned after it was compiled");
    }
    return new TaskIdentity(
        spec.name(),
        spec.node(),
        instance,
        Long.parseLong(batch),
        task.taskAttemptId(),
        task.stageAttemptNumber(),
        task.attemptNumber());
  }

  @Override
  public String toString() {
    return "operator '" + operator + "', instance " + instance + ", epoch " + epoch;
  }
}
