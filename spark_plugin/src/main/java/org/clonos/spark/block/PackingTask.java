package org.clonos.spark.block;

import java.io.IOException;
import java.util.ArrayDeque;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;
import org.clonos.spark.task.BatchId;
import org.clonos.spark.task.Puller;
import org.clonos.spark.task.TaskIterator;
import org.clonos.spark.task.TaskThreads;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/**
 * Where a causal query begins: one task of a source, whose rows become blocks. Spark sees an iterator of rows of two
 * columns, the destination and the block.
 */
public final class PackingTask extends TaskIterator {
  private static final Logger LOG = LoggerFactory.getLogger(PackingTask.class);

  private final long epoch;
  private final RowGroups groups;
  private final BufferAllocator allocator;
  private final BlockWriter writer;
  private final Thread pullThread;
  private final ArrayDeque<RowGroups.Taken> taken = new ArrayDeque<>();

  /** Starts on the rows of the current task: the columns that the readers ask for, then the user's. */
  public static Iterator<Object> start(
      Iterator<Object> input, StructType user, Readers readers, int maxRows, long maxBytes) {
    return new PackingTask(TaskContext.get(), input, user, readers, maxRows, maxBytes);
  }

  private PackingTask(
      TaskContext task, Iterator<Object> input, StructType user, Readers readers, int maxRows, long maxBytes) {
    super(task);
    epoch = BatchId.of(task, "a source");
    groups = new RowGroups(readers, maxRows, maxBytes);
    allocator = ArrowUtils.rootAllocator().newChildAllocator("clonos-source", 0, Long.MAX_VALUE);
    writer = new BlockWriter(user, readers.userColumn(), allocator);
    pullThread = TaskThreads.daemon(new Puller(task, input, groups), "clonos-pull-" + task.taskAttemptId());
    // Where a task fails, its readers are closed by listeners that they add while they read, which come before those
    // that were there already. Listeners of the failure come before all of them.
    TaskFailureListener failed = (context, error) -> stop();
    TaskCompletionListener completed = context -> end();
    task.addTaskFailureListener(failed);
    task.addTaskCompletionListener(completed);
    pullThread.start();
  }

  @Override
  protected boolean ready() {
    return !taken.isEmpty();
  }

  @Override
  protected boolean finished() {
    return groups.finished();
  }

  @Override
  protected void take(long waitMs) throws Throwable {
    taken.addAll(groups.take(waitMs));
  }

  @Override
  protected InternalRow give() throws IOException {
    RowGroups.Taken next = taken.poll();
    return BlockRow.of(next.destination(), writer.block(epoch, next));
  }

  private void stop() {
    groups.stop();
    pullThread.interrupt();
    if (!TaskThreads.join(pullThread)) {
      LOG.warn("{} did not end; what it reads stays open", pullThread.getName());
    }
  }

  private void end() {
    stop();
    writer.close();
    allocator.close();
  }
}
