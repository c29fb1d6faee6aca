package org.clonos.spark;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A column of a row that a causal stage gives. The row is known by its place and not by a name, as in Spark's own
 * serializers, because Spark evaluates them as they stand where it generates no code, as for more columns than
 * {@code spark.sql.codegen.maxFields}. Spark's own {@code GetStructField} is what code is generated of; evaluated, it
 * takes it for granted that a row gives null for a null, and rows in Arrow memory raise.
 */
public final class OutputField extends Expression implements Serializable {
  private static final long serialVersionUID = 1L;

  private final StructType schema;
  private final int ordinal;

  public OutputField(StructType schema, int ordinal) {
    this.schema = schema;
    this.ordinal = ordinal;
  }

  @Override
  public Object eval(InternalRow input) {
    InternalRow row = input.getStruct(0, schema.length());
    return row.isNullAt(ordinal) ? null : row.get(ordinal, dataType());
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    BoundReference row = new BoundReference(0, schema, false);
    return new GetStructField(row, ordinal, Option.empty()).genCode(context);
  }

  @Override
  public boolean nullable() {
    return schema.fields()[ordinal].nullable();
  }

  @Override
  public DataType dataType() {
    return schema.fields()[ordinal].dataType();
  }

  @Override
  public Seq<Expression> children() {
    return Plans.seq(List.of());
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> newChildren) {
    return this;
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int index) {
    return switch (index) {
      case 0 -> schema;
      case 1 -> ordinal;
      default -> throw new IndexOutOfBoundsException(index);
    };
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof OutputField;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof OutputField field && ordinal == field.ordinal && schema.equals(field.schema);
  }

  @Override
  public int hashCode() {
    return 31 * schema.hashCode() + ordinal;
  }
}
