package org.clonos.spark.conduit;

import java.io.IOException;
import java.nio.channels.Selector;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import org.clonos.spark.task.CausalStageException;
import org.clonos.spark.task.Puller;
import org.clonos.spark.task.TaskIterator;
import org.clonos.spark.task.TaskThreads;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/**
 * One task attempt of a causal stage, as the iterator of its output blocks. However the task ends, its
 * completion listener stops both threads before Spark frees what the puller reads from, and then gives back memory,
 * socket and spill files.
 */
public final class ConduitTask extends TaskIterator {
  private static final Logger LOG = LoggerFactory.getLogger(ConduitTask.class);

  private final TaskIdentity identity;
  private final OutputQueue output;
  private final BundleBuilder bundles;
  private final Conduit conduit;
  private final Thread conduitThread;
  private final Thread pullThread;
  private OutputBlocks batch;
  private int nextBlock;

  /**
   * Starts the conduit of an instance in the current task, on rows whose column {@code block} holds the blocks. When the
   * task attempt is over, {@code reports} has what the instance has done.
   */
  public static Iterator<Object> start(
      Iterator<Object> input, int block, StageSpec spec, int instance, CollectionAccumulator<String> reports) {
    TaskContext task = TaskContext.get();
    return new ConduitTask(task, TaskIdentity.of(task, spec, instance), input, block, spec, reports);
  }

  private ConduitTask(
      TaskContext task,
      TaskIdentity identity,
      Iterator<Object> input,
      int block,
      StageSpec spec,
      CollectionAccumulator<String> reports) {
    super(task);
    this.identity = identity;
    String label = identity.node() + "-" + identity.instance();
    Selector selector = open();
    output = new OutputQueue(selector::wakeup);
    conduit = new Conduit(spec, identity, selector, output, reports);
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
  protected boolean ready() {
    return batch != null && nextBlock < batch.count();
  }

  @Override
  protected boolean finished() {
    return output.finished();
  }

  @Override
  protected void take(long waitMs) throws Throwable {
    batch = null;
    nextBlock = 0;
    batch = output.poll(waitMs);
  }

  @Override
  protected InternalRow give() {
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
