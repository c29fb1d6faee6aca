package org.clonos.spark.task;

import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;

/**
 * Pulls the task's input on a thread of its own, so that waiting for the next input row never holds output back. The
 * thread carries the task's context: Spark's shuffle readers and configuration look it up there.
 */
public final class Puller implements Runnable {
  private final TaskContext task;
  private final Iterator<Object> input;
  private final RowTaker rows;

  public Puller(TaskContext task, Iterator<Object> input, RowTaker rows) {
    this.task = task;
    this.input = input;
    this.rows = rows;
  }

  @Override
  public void run() {
    TaskContext$.MODULE$.setTaskContext(task);
    Throwable failure = null;
    try {
      while (input.hasNext()) {
        rows.append((InternalRow) input.next());
      }
    } catch (Throwable e) {
      failure = e;
    } finally {
      rows.exhaust(failure);
      TaskContext$.MODULE$.unset();
    }
  }
}
