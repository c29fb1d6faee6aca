package org.clonos.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.DeserializeToObject;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapPartitions;
import org.apache.spark.sql.catalyst.plans.logical.SerializeFromObject;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructField;
import org.clonos.spark.block.BlockRow;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts a stage that gives blocks on top of a plan. To Spark it is a typed {@code mapPartitions}, the operator that
 * Real-Time Mode lets pass and streams through row by row; but no external row is ever built: the function gets the
 * binary rows ({@link InputRow}) and gives internal rows, which Spark copies into its own format once.
 */
final class TypedStage {
  private TypedStage() {}

  static List<Attribute> attributes(LogicalPlan plan) {
    return new ArrayList<>(CollectionConverters.asJava(plan.output()));
  }

  /** The Dataset of blocks that the function makes of the child's partitions. */
  static Dataset<Row> on(
      Dataset<Row> input, LogicalPlan child, Function1<Iterator<Object>, Iterator<Object>> function) {
    LogicalPlan rows =
        new DeserializeToObject(
            new InputRow(Plans.seq(new ArrayList<>(attributes(child)))),
            attribute("row", new ObjectType(InternalRow.class)),
            child);
    LogicalPlan stage = new MapPartitions(function, attribute("output", BlockRow.SCHEMA), rows);
    List<NamedExpression> fields = new ArrayList<>();
    for (int i = 0; i < BlockRow.SCHEMA.length(); i++) {
      StructField field = BlockRow.SCHEMA.fields()[i];
      // By its place and not by a name: Spark evaluates it as it stands in sessions that generate no code.
      GetStructField column =
          new GetStructField(new BoundReference(0, BlockRow.SCHEMA, false), i, Option.empty());
      fields.add(Plans.alias(column, field.name(), Option.apply(field.metadata())));
    }
    return Plans.dataset(input, new SerializeFromObject(Plans.seq(fields), stage));
  }

  private static AttributeReference attribute(String name, DataType type) {
    return new AttributeReference(
        name, type, false, Metadata.empty(), NamedExpression.newExprId(), Plans.seq(List.of()));
  }
}
