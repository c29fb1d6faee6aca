package org.clonos.spark.task;

import org.apache.spark.sql.catalyst.InternalRow;

/** What a {@link Puller} gives the rows to. */
public interface RowTaker {
  /** Takes a row, whose memory Spark uses again for the next one; waits while there is no room. */
  void append(InternalRow row) throws InterruptedException;

  /** No more rows come; {@code cause} is why, if the input failed. */
  void exhaust(Throwable cause);
}
