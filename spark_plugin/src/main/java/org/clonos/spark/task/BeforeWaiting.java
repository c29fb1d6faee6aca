package org.clonos.spark.task;

/** What the thread of a task does each time before it waits for rows. */
public final class BeforeWaiting {
  private static final ThreadLocal<Runnable> ACTION = new ThreadLocal<>();

  private BeforeWaiting() {}

  /** Runs {@code work} in this thread; each time before it waits for rows of a {@link TaskIterator}, {@code action}. */
  public static void run(Runnable action, Runnable work) {
    ACTION.set(action);
    try {
      work.run();
    } finally {
      ACTION.remove();
    }
  }

  /** To be called before the thread waits. */
  public static void happen() {
    Runnable action = ACTION.get();
    if (action != null) {
      action.run();
    }
  }
}
