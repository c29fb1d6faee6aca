package org.clonos.spark.conduit;

import java.io.IOException;
import java.nio.channels.Selector;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.TaskCompletionListener;
import org.clonos.spark.task.CausalStageException;
import org.clonos.spark.task.Puller;
import org.clonos.spark.task.TaskThreads;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * One task attempt of a causal stage, as the iterator of its output blocks. It never waits for a next block before it
 * gives the current one. However the task ends, its completion listener stops both threads before Spark frees what
 * the puller reads from, and then gives back memory, socket and spill files.
 */
public final class ConduitTask extends AbstractIterator<Object> {
  private static final Logger LOG = LoggerFactory.getLogger(ConduitTask.class);
  private static final long POLL_MS = 100;

  private final TaskContext task;
  private final TaskIdentity identity;
  private final OutputQueue output;
  private final BundleBuilder bundles;
  private final Conduit conduit;
  private final Thread conduitThread;
  private final Thread pullThread;
  private OutputBlocks batch;
  private int nextBlock;

  /**
   * Starts the conduit of an instance in the current task, on rows whose column {@code block} holds the blocks.
   */
  public static Iterator<Object> start(Iterator<Object> input, int block, StageSpec spec, int instance) {
    TaskContext task = TaskContext.get();
    return new ConduitTask(task, TaskIdentity.of(task, spec, instance), input, block, spec);
  }

  private ConduitTask(
      TaskContext task, TaskIdentity identity, Iterator<Object> input, int block, StageSpec spec) {
    this.task = task;
    this.identity = identity;
    String label = identity.node() + "-" + identity.instance();
    Selector selector = open();
    output = new OutputQueue(selector::wakeup);
    conduit = new Conduit(spec, identity, selector, output);
    bundles = new BundleBuilder(block, spec.bundleRows(), spec.bundleBytes(), selector::wakeup);
    conduit.attach(bundles);
    conduitThread = TaskThreads.daemon(conduit, "clonos-conduit-" + label);
    pullThread = TaskThreads.daemon(new Puller(task, input, bundles), "clonos-pull-" + label);
    TaskCompletionListener listener = context -> end();
    task.addTaskCompletionListener(listener);
    conduitThread.start();
    pullThread.start();
  }

  private Selector open() {
    try {
      return Selector.open();
    } catch (IOException e) {
      throw new CausalStageException("StorageUnavailable", identity + ": cannot open a selector: " + e, e);
    }
  }

  @Override
  public boolean hasNext() {
    try {
      while (batch == null || nextBlock == batch.count()) {
        batch = null;
        nextBlock = 0;
        if (output.finished()) {
          return false;
        }
        batch = output.poll(POLL_MS);
        task.killTaskIfInterrupted();
      }
      return true;
    } catch (Throwable e) {
      throw TaskThreads.<RuntimeException>sneak(e);
    }
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new java.util.NoSuchElementException();
    }
    return batch.block(nextBlock++);
  }

  private void end() {
    conduit.stop();
    bundles.stop();
    pullThread.interrupt();
    if (!TaskThreads.join(conduitThread, pullThread)) {
      LOG.warn("{}: a thread of the conduit did not end; what it holds stays open", identity);
      return;
    }
    output.clear();
  }
}
