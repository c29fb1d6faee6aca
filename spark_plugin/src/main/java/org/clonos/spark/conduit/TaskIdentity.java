package org.clonos.spark.conduit;

import org.apache.spark.TaskContext;
import org.clonos.spark.task.BatchId;
import org.clonos.spark.task.CausalStageException;

/** Which instance of which operator works on which epoch, in which attempt. */
record TaskIdentity(
    String operator, int node, int instance, long epoch, long taskAttemptId, int stageAttempt, int taskAttempt) {
  /** {@code partition} is that of the stage's own rows, or null where it is the task's. */
  static TaskIdentity of(TaskContext task, StageSpec spec, Integer partition) {
    long epoch = BatchId.of(task, "operator '" + spec.name() + "'");
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
        epoch,
        task.taskAttemptId(),
        task.stageAttemptNumber(),
        task.attemptNumber());
  }

  @Override
  public String toString() {
    return "operator '" + operator + "', instance " + instance + ", epoch " + epoch;
  }
}
