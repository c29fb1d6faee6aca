package org.clonos.spark.source;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.clonos.spark.Plans;
import org.clonos.spark.executor.ChannelNumbers;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a record is known by, as columns: taken at the leaf of the plan, where the source is, and carried through every
 * projection above it, so that a query may leave those columns out of its own.
 */
public final class SourceIdentity {
  private SourceIdentity() {}

  /**
   * The Dataset with columns of its only leaf beside its own: {@code columns} says which, and under which names. Between
   * the leaf and the top there is nothing but what passes rows on one by one.
   */
  public static Dataset<Row> carried(Dataset<Row> given, Map<String, String> columns) {
    return Plans.dataset(given, carried(analyzed(given), columns));
  }

  private static LogicalPlan carried(LogicalPlan plan, Map<String, String> columns) {
    List<LogicalPlan> children = CollectionConverters.asJava(plan.children());
    if (children.isEmpty()) {
      List<NamedExpression> all = new ArrayList<>(CollectionConverters.asJava(plan.output()));
      columns.forEach((name, as) -> all.add(Plans.alias(attribute(plan, name), as, Option.empty())));
      return new Project(Plans.seq(all), plan);
    }
    LogicalPlan child = carried(children.get(0), columns);
    if (plan instanceof View) { // says which columns it has; its own child says the same
      return child;
    }
    if (plan instanceof Project project) {
      List<NamedExpression> all = new ArrayList<>(CollectionConverters.asJava(project.projectList()));
      columns.values().forEach(name -> all.add(attribute(child, name)));
      return new Project(Plans.seq(all), child);
    }
    return plan.withNewChildren(Plans.seq(List.of(child)));
  }

  /** The Dataset with the number of each record's channel, which the text column {@code name} names, as one more. */
  public static Dataset<Row> numbered(Dataset<Row> given, String name, String as, String table) {
    LogicalPlan plan = analyzed(given);
    List<Expression> arguments =
        List.of(new Literal(UTF8String.fromString(table), DataTypes.StringType), attribute(plan, name));
    Expression number =
        new StaticInvoke(
            ChannelNumbers.class,
            DataTypes.LongType,
            "number",
            Plans.seq(arguments),
            Plans.seq(List.of()),
            false,
            false,
            true,
            Option.empty());
    List<NamedExpression> all = new ArrayList<>(CollectionConverters.asJava(plan.output()));
    all.add(Plans.alias(number, as, Option.empty()));
    return Plans.dataset(given, new Project(Plans.seq(all), plan));
  }

  private static LogicalPlan analyzed(Dataset<Row> given) {
    return Plans.classic(given).queryExecution().analyzed();
  }

  private static Attribute attribute(LogicalPlan plan, String name) {
    return CollectionConverters.asJava(plan.output()).stream()
        .filter(column -> column.name().equals(name))
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("there is no column " + name + " in " + plan.output()));
  }
}
