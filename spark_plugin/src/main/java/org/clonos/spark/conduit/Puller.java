package org.clonos.spark.conduit;

import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;

/**
 * Pulls the task's input on a thread of its own, so that waiting for the next input row never holds output back. The
 * thread carries the task's context: Spark's shuffle readers and configuration look it up there.
 */
final class Puller implements Runnable {
  private final TaskContext task;
  private final Iterator<Object> input;
  private final BundleBuilder bundles;

  Puller(TaskContext task, Iterator<Object> input, BundleBuilder bundles) {
    this.task = task;
    this.input = input;
    this.bundles = bundles;
  }

  @Override
  public void run() {
    TaskContext$.MODULE$.setTaskContext(task);
    Throwable failure = null;
    try {
      while (input.hasNext()) {
        bundles.append((InternalRow) input.next());
      }
    } catch (Throwable e) {
      failure = e;
    } finally {
      bundles.exhaust(failure);
      TaskContext$.MODULE$.unset();
    }
  }
}
