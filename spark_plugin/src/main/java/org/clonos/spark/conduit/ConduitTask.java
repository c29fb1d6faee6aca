package org.clonos.spark.conduit;

import java.io.IOException;
import java.nio.channels.Selector;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * One task attempt of a causal stage, as the iterator of its output rows. It never waits for a next row before it
 * gives the current one. However the task ends, its completion listener stops both threads before Spark frees what
 * the puller reads from, and then gives back memory, socket and spill files.
 */
public final class ConduitTask extends AbstractIterator<Object> {
  private static final Logger LOG = LoggerFactory.getLogger(ConduitTask.class);
  private static final long POLL_MS = 100;
  private static final long JOIN_MS = 10_000;

  private final TaskContext task;
  private final TaskIdentity identity;
  private final BufferAllocator allocator;
  private final OutputQueue output;
  private final BundleBuilder bundles;
  private final Conduit conduit;
  private final Thread conduitThread;
  private final Thread pullThread;
  private OutputBatch batch;
  private int nextRow;

  /** Starts the conduit of the current task, for a partition of the stage's rows; null: that of the task. */
  public static Iterator<Object> start(
      Iterator<Object> input, StageInput columns, StageSpec spec, Integer partition) {
    TaskContext task = TaskContext.get();
    return new ConduitTask(task, TaskIdentity.of(task, spec, partition), input, columns, spec);
  }

  private ConduitTask(
      TaskContext task,
      TaskIdentity identity,
      Iterator<Object> input,
      StageInput columns,
      StageSpec spec) {
    this.task = task;
    this.identity = identity;
    String label = identity.node() + "-" + identity.instance();
    allocator = ArrowUtils.rootAllocator().newChildAllocator("clonos-" + label, 0, Long.MAX_VALUE);
    Schema arrowInput = arrow(columns.schema());
    Selector selector = open();
    output = new OutputQueue(selector::wakeup);
    conduit = new Conduit(spec, identity, arrow(spec.outputSchema()), allocator, selector, output);
    bundles =
        new BundleBuilder(
            spec.bundleRows(),
            spec.bundleBytes(),
            () -> new BundleWriter(arrowInput, columns.ordinals(), allocator),
            selector::wakeup);
    conduit.attach(bundles);
    conduitThread = daemon(conduit, "clonos-conduit-" + label);
    pullThread = daemon(new Puller(task, input, bundles), "clonos-pull-" + label);
    TaskCompletionListener listener = context -> end();
    task.addTaskCompletionListener(listener);
    conduitThread.start();
    pullThread.start();
  }

  /** The Arrow schema of both directions: Spark's own mapping, times in UTC, no large variable-width types. */
  public static Schema arrow(StructType schema) {
    return ArrowUtils.toArrowSchema(schema, "UTC", true, false, ArrowUtils.toArrowSchema$default$5());
  }

  private Selector open() {
    try {
      return Selector.open();
    } catch (IOException e) {
      allocator.close();
      throw new CausalStageException("StorageUnavailable", identity + ": cannot open a selector: " + e, e);
    }
  }

  private static Thread daemon(Runnable body, String name) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    return thread;
  }

  @Override
  public boolean hasNext() {
    try {
      while (batch == null || nextRow == batch.rows()) {
        release();
        if (output.finished()) {
          return false;
        }
        batch = output.poll(POLL_MS);
        task.killTaskIfInterrupted();
      }
      return true;
    } catch (Throwable e) {
      throw ConduitTask.<RuntimeException>sneak(e);
    }
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new java.util.NoSuchElementException();
    }
    return batch.row(nextRow++);
  }

  /** Spark looks at the class of what fails a task (a fetch failure, a kill): it must arrive as it was. */
  @SuppressWarnings("unchecked")
  private static <T extends Throwable> RuntimeException sneak(Throwable e) throws T {
    throw (T) e;
  }

  private void release() {
    if (batch != null) {
      batch.close();
      batch = null;
    }
    nextRow = 0;
  }

  private void end() {
    conduit.stop();
    bundles.stop();
    pullThread.interrupt();
    boolean interrupted = Thread.interrupted();
    interrupted |= join(conduitThread);
    interrupted |= join(pullThread);
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    if (conduitThread.isAlive() || pullThread.isAlive()) {
      LOG.warn("{}: a thread of the conduit did not end; its memory stays allocated", identity);
      return;
    }
    release();
    output.clear();
    bundles.close();
    try {
      allocator.close();
    } catch (IllegalStateException e) {
      LOG.warn("{}: Arrow memory was not given back: {}", identity, e.getMessage());
    }
  }

  /** Waits for a thread to end; says whether an interrupt came meanwhile. */
  private static boolean join(Thread thread) {
    boolean interrupted = false;
    long deadline = System.nanoTime() + JOIN_MS * 1_000_000;
    long left;
    while (thread.isAlive() && (left = (deadline - System.nanoTime()) / 1_000_000) > 0) {
      try {
        thread.join(left);
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    return interrupted;
  }
}
