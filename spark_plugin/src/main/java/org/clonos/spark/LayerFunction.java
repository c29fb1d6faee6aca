package org.clonos.spark;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.util.CollectionAccumulator;
import org.clonos.spark.block.Forwarder;
import org.clonos.spark.conduit.ConduitTask;
import org.clonos.spark.conduit.LayerSpec;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** What a layer does to a partition: blocks in, blocks out, through the conduit of an instance, or as they are. */
final class LayerFunction extends AbstractFunction1<Iterator<Object>, Iterator<Object>> implements Serializable {
  private static final long serialVersionUID = 1L;

  private final int block;
  private final String specification;
  private final CollectionAccumulator<String> reports;

  LayerFunction(int block, String specification, CollectionAccumulator<String> reports) {
    this.block = block;
    this.specification = specification;
    this.reports = reports;
  }

  @Override
  public Iterator<Object> apply(Iterator<Object> input) {
    LayerSpec layer = LayerSpec.parse(specification);
    LayerSpec.Partition partition = layer.of(TaskContext.get());
    return partition.forwards()
        ? new Forwarder(input, block, partition.number())
        : ConduitTask.start(input, block, layer.nodes().get(partition.node()), partition.number(), reports);
  }

  @Override
  public String toString() {
    return "clonos";
  }
}
