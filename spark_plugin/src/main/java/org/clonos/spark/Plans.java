package org.clonos.spark;

import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.Metadata;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Spark's plans and expressions, built from Java. */
public final class Plans {
  private Plans() {}

  public static <T> Seq<T> seq(List<T> items) {
    return CollectionConverters.asScala(items).toList();
  }

  public static Alias alias(Expression expression, String name, Option<Metadata> metadata) {
    return new Alias(
        expression, name, NamedExpression.newExprId(), seq(List.of()), metadata, seq(List.of()));
  }

  /** A Dataset of the same session. */
  public static Dataset<Row> dataset(Dataset<Row> like, LogicalPlan plan) {
    return org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(classic(like).sparkSession(), plan);
  }

  public static org.apache.spark.sql.classic.Dataset<Row> classic(Dataset<Row> given) {
    return (org.apache.spark.sql.classic.Dataset<Row>) given;
  }
}
