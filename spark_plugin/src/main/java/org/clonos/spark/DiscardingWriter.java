package org.clonos.spark;

import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * The end of a causal query as Spark sees it. The causal sink stage gives no rows; this writer, through Spark's
 * {@code foreach}, passes the checks of both modes, prints nothing and runs nothing in the driver.
 */
public final class DiscardingWriter extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;

  @Override
  public boolean open(long partitionId, long epochId) {
    return true;
  }

  @Override
  public void process(Row row) {
    throw new IllegalStateException("a causal sink stage gives no rows");
  }

  @Override
  public void close(Throwable error) {}
}
