package org.clonos.spark;

import java.io.Serializable;
import org.clonos.spark.conduit.ConduitTask;
import org.clonos.spark.conduit.StageSpec;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** What a causal stage does to a partition: blocks in, blocks out, through a conduit. */
final class StageFunction extends AbstractFunction1<Iterator<Object>, Iterator<Object>> implements Serializable {
  private static final long serialVersionUID = 1L;

  private final int block;
  private final String specification;

  StageFunction(int block, String specification) {
    this.block = block;
    this.specification = specification;
  }

  @Override
  public Iterator<Object> apply(Iterator<Object> input) {
    return ConduitTask.start(input, block, StageSpec.parse(specification), InputRow.takePartition());
  }

  @Override
  public String toString() {
    return "clonos";
  }
}
