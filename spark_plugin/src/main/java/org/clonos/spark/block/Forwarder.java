package org.clonos.spark.block;

import org.apache.spark.sql.catalyst.InternalRow;
import org.clonos.spark.task.BeforeWaiting;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** A partition that hands blocks on to a partition of the next layer, as they come. */
public final class Forwarder extends AbstractIterator<Object> {
  private final Iterator<Object> input;
  private final int column;
  private final int to;

  /** The block stands in this column of the rows that come. */
  public Forwarder(Iterator<Object> input, int column, int to) {
    this.input = input;
    this.column = column;
    this.to = to;
  }

  @Override
  public boolean hasNext() {
    BeforeWaiting.happen(); // it may: whether there is a next block does not show beforehand
    return input.hasNext();
  }

  @Override
  public InternalRow next() {
    return BlockRow.of(to, ((InternalRow) input.next()).getBinary(column));
  }
}
