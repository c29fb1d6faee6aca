package org.clonos.spark;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ObjectType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * "Deserializes" a row to itself. Spark hands typed functions Java objects that it builds column by column; a causal
 * stage wants the binary row as it came out of the shuffle, and this expression gives exactly that. Its children are
 * the columns of the stage's input, so that no optimizer rule drops or reorders one unnoticed; should the physical
 * row nevertheless be laid out otherwise, the row is put together from them.
 *
 * <p>It is never part of generated code: an expression that needs its input row keeps its operator out of whole-stage
 * code generation, and the row is then passed by reference.
 */
public final class InputRow extends Expression implements CodegenFallback, Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq<Expression> columns;
  private transient Boolean laidOutAsIs;

  public InputRow(Seq<Expression> columns) {
    this.columns = columns;
  }

  @Override
  public Object eval(InternalRow input) {
    if (laidOutAsIs == null) {
      laidOutAsIs = laidOutAsIs(input);
    }
    if (laidOutAsIs) {
      return input;
    }
    Object[] values = new Object[columns.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] = columns.apply(i).eval(input);
    }
    return new GenericInternalRow(values);
  }

  private boolean laidOutAsIs(InternalRow input) {
    if (input.numFields() != columns.size()) {
      return false;
    }
    for (int i = 0; i < columns.size(); i++) {
      if (!(columns.apply(i) instanceof BoundReference reference) || reference.ordinal() != i) {
        return false;
      }
    }
    return true;
  }

  @Override
  public boolean nullable() {
    return false;
  }

  @Override
  public DataType dataType() {
    return new ObjectType(InternalRow.class);
  }

  @Override
  public Seq<Expression> children() {
    return columns;
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> newColumns) {
    return new InputRow(newColumns);
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int index) {
    if (index != 0) {
      throw new IndexOutOfBoundsException(index);
    }
    return columns;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof InputRow;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof InputRow row && columns.equals(row.columns);
  }

  @Override
  public int hashCode() {
    return columns.hashCode();
  }
}
