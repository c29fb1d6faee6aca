package org.clonos.spark;

import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.util.CollectionAccumulator;
import org.clonos.spark.block.BlockRow;
import org.clonos.spark.conduit.LayerSpec;
import scala.jdk.javaapi.CollectionConverters;

/** A layer of causal operators and sinks: blocks in, blocks out. */
public final class CausalStage {
  private CausalStage() {}

  /**
   * The Dataset of the stage's blocks; the specification is checked here, in the driver. Each instance adds to {@code
   * reports} what it has done in an epoch ({@link org.clonos.spark.progress.InstanceReport}).
   */
  public static Dataset<Row> apply(
      Dataset<Row> input, String specification, CollectionAccumulator<String> reports) {
    LayerSpec.parse(specification);
    LogicalPlan child = withoutProjections(Plans.classic(input).logicalPlan());
    List<String> names = TypedStage.attributes(child).stream().map(Attribute::name).toList();
    int block = names.indexOf(BlockRow.BLOCK);
    if (block < 0) {
      throw new IllegalArgumentException(
          "the input of a causal stage has a column " + BlockRow.BLOCK + ", not " + names);
    }
    return TypedStage.on(input, child, new LayerFunction(block, specification, reports));
  }

  /**
   * Leaves out projections that only choose columns: the stage picks its column itself. It saves a copy of every row,
   * and a stage that stands directly on its exchange runs in every epoch. Adaptive execution replaces a projection of
   * an exchange that turned out empty by nothing at all, and a stage above that would have no tasks.
   */
  private static LogicalPlan withoutProjections(LogicalPlan plan) {
    LogicalPlan below = plan;
    while (below instanceof Project project
        && CollectionConverters.asJava(project.projectList()).stream().allMatch(Attribute.class::isInstance)) {
      below = project.child();
    }
    return below;
  }
}
