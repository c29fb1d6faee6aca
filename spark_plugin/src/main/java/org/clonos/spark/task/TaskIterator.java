package org.clonos.spark.task;

import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;

/**
 * The rows that a task gets from threads of its own. While it waits for one it looks whether the task is to be killed,
 * and it never waits for a next row before it gives the current one.
 */
public abstract class TaskIterator extends AbstractIterator<Object> {
  private static final long POLL_MS = 100;

  private final TaskContext task;

  protected TaskIterator(TaskContext task) {
    this.task = task;
  }

  /** A row is there. */
  protected abstract boolean ready();

  /** No more rows come. */
  protected abstract boolean finished();

  /** Takes what has come; where nothing has, waits for it for at most so long, 0 not at all. */
  protected abstract void take(long waitMs) throws Throwable;

  /** The row that is there. */
  protected abstract InternalRow give() throws Throwable;

  @Override
  public final boolean hasNext() {
    try {
      while (!ready()) {
        if (finished()) {
          return false;
        }
        take(0);
        if (!ready() && !finished()) {
          BeforeWaiting.happen();
          take(POLL_MS);
        }
        task.killTaskIfInterrupted();
      }
      return true;
    } catch (Throwable e) {
      throw TaskIterator.<RuntimeException>sneak(e);
    }
  }

  @Override
  public final InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    try {
      return give();
    } catch (Throwable e) {
      throw TaskIterator.<RuntimeException>sneak(e);
    }
  }

  /** Spark looks at the class of what fails a task (a fetch failure, a kill): it must arrive as it was. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> RuntimeException sneak(Throwable e) throws T {
    throw (T) e;
  }
}
