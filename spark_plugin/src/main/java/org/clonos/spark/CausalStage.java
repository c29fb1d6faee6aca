package org.clonos.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.DeserializeToObject;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapPartitions;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SerializeFromObject;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.clonos.spark.conduit.ConduitTask;
import org.clonos.spark.conduit.StageInput;
import org.clonos.spark.conduit.StageSpec;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts a causal stage on top of a Dataset. To Spark it is a typed {@code mapPartitions}, the operator that Real-Time
 * Mode lets pass and streams through row by row; but no external row is ever built: the function gets the binary rows
 * ({@link InputRow}) and gives rows that read Arrow memory in place, which Spark copies into its own format once.
 */
public final class CausalStage {
  private static final String DESTINATION = "_clonos_destination";
  private static final List<String> INPUT = List.of("_clonos_channel", "_clonos_position", "_clonos_delta");
  private static final List<String> OUTPUT =
      List.of("_clonos_channel", "_clonos_position", DESTINATION, "_clonos_delta");

  private CausalStage() {}

  /** The Dataset of the stage's output; the specification is checked here, in the driver. */
  public static Dataset<Row> apply(Dataset<Row> input, String specification) {
    StageSpec spec = StageSpec.parse(specification);
    LogicalPlan given = Plans.classic(input).logicalPlan();
    List<Attribute> wanted = attributes(given);
    wanted.removeIf(column -> column.name().equals(DESTINATION));
    LogicalPlan child = withoutProjections(given);
    StageInput columns = columns(wanted, attributes(child));
    require("input", columns.schema(), INPUT);
    require("output", spec.outputSchema(), OUTPUT);
    ConduitTask.arrow(columns.schema());
    ConduitTask.arrow(spec.outputSchema());
    LogicalPlan plan = plan(child, columns, spec.outputSchema(), specification);
    return Plans.dataset(input, plan);
  }

  /**
   * Leaves out projections that only choose columns: the stage picks its columns itself. It saves a copy of every row,
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

  private static List<Attribute> attributes(LogicalPlan plan) {
    return new ArrayList<>(CollectionConverters.asJava(plan.output()));
  }

  private static StageInput columns(List<Attribute> wanted, List<Attribute> delivered) {
    List<ExprId> identities = delivered.stream().map(Attribute::exprId).toList();
    StructType schema = new StructType();
    for (Attribute column : wanted) {
      schema = schema.add(column.name(), column.dataType(), column.nullable());
    }
    int[] ordinals = wanted.stream().mapToInt(column -> identities.indexOf(column.exprId())).toArray();
    return new StageInput(schema, ordinals);
  }

  private static LogicalPlan plan(
      LogicalPlan child, StageInput input, StructType outputSchema, String specification) {
    LogicalPlan rows =
        new DeserializeToObject(
            new InputRow(Plans.seq(new ArrayList<>(attributes(child)))),
            attribute("row", new ObjectType(InternalRow.class)),
            child);
    LogicalPlan stage =
        new MapPartitions(
            new StageFunction(input, specification), attribute("output", outputSchema), rows);
    List<NamedExpression> fields = new ArrayList<>();
    for (int i = 0; i < outputSchema.length(); i++) {
      StructField field = outputSchema.fields()[i];
      fields.add(Plans.alias(new OutputField(outputSchema, i), field.name(), Option.apply(field.metadata())));
    }
    return new SerializeFromObject(Plans.seq(fields), stage);
  }

  private static AttributeReference attribute(String name, DataType type) {
    return new AttributeReference(
        name, type, false, Metadata.empty(), NamedExpression.newExprId(), Plans.seq(List.of()));
  }

  private static void require(String side, StructType schema, List<String> hidden) {
    List<String> names = List.of(schema.fieldNames());
    if (names.size() < hidden.size() || !names.subList(0, hidden.size()).equals(hidden)) {
      throw new IllegalArgumentException(
          "the " + side + " of a causal stage begins with the columns " + hidden + ", not " + names);
    }
  }
}
