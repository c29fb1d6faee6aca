package org.clonos.spark.task;

import org.apache.spark.util.UninterruptibleThread;

/** What tasks do that have threads of their own. */
public final class TaskThreads {
  private static final long JOIN_MS = 10_000;

  private TaskThreads() {}

  /**
   * Of the kind that Spark's own tasks run in: what an iterator does in it must not be interrupted halfway. (The consumer
   * of the Kafka source warns at every record in any other thread.)
   */
  public static Thread daemon(Runnable body, String name) {
    Thread thread = new UninterruptibleThread(body, name);
    thread.setDaemon(true);
    return thread;
  }

  /** Waits for threads to end, and keeps an interrupt that comes meanwhile; false where one of them does not end. */
  public static boolean join(Thread... threads) {
    boolean interrupted = Thread.interrupted();
    boolean ended = true;
    for (Thread thread : threads) {
      long deadline = System.nanoTime() + JOIN_MS * 1_000_000;
      long left;
      while (thread.isAlive() && (left = (deadline - System.nanoTime()) / 1_000_000) > 0) {
        try {
          thread.join(left);
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
      ended &= !thread.isAlive();
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return ended;
  }
}
