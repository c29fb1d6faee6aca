package org.clonos.spark.conduit;

import org.apache.spark.TaskContext;
import org.clonos.spark.task.BatchId;

/** Which instance of which operator works on which epoch, in which attempt. */
record TaskIdentity(
    String operator, int node, int instance, long epoch, long taskAttemptId, int stageAttempt, int taskAttempt) {
  static TaskIdentity of(TaskContext task, StageSpec spec, int instance) {
    long epoch = BatchId.of(task, "operator '" + spec.name() + "'");
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
