package org.clonos.spark;

import java.io.Serializable;
import org.clonos.spark.conduit.ConduitTask;
import org.clonos.spark.conduit.StageInput;
import org.clonos.spark.conduit.StageSpec;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** What a causal stage does to a partition: internal rows in, internal rows out, through a conduit. */
final class StageFunction extends AbstractFunction1<Iterator<Object>, Iterator<Object>> implements Serializable {
  private static final long serialVersionUID = 1L;

  private final StageInput columns;
  private final String specification;

  StageFunction(StageInput columns, String specification) {
    this.columns = columns;
    this.specification = specification;
  }

  @Override
  public Iterator<Object> apply(Iterator<Object> input) {
    return ConduitTask.start(input, columns, StageSpec.parse(specification), InputRow.takePartition());
  }

  @Override
  public String toString() {
    return "clonos";
  }
}
