package org.clonos.spark;

import java.io.Serializable;
import java.util.function.IntConsumer;
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
 *
 * <p>It also learns which partition it works on. A task does not know: where the rows of two stages are united, both run
 * in one Spark stage, whose tasks are numbered through. Spark tells every projection when it begins a partition, before
 * the first row and in the task's thread, and the stage on top asks ({@link #takePartition}) right after.
 */
public final class InputRow extends Expression implements CodegenFallback, IntConsumer, Serializable {
  private static final long serialVersionUID = 1L;
  private static final ThreadLocal<Integer> PARTITION = new ThreadLocal<>();

  private final Seq<Expression> columns;
  private transient Boolean laidOutAsIs;

  public InputRow(Seq<Expression> columns) {
    this.columns = columns;
  }

  /** The partition that this thread has begun; null where Spark did not tell, because it interprets expressions. */
  static Integer takePartition() {
    Integer partition = PARTITION.get();
    PARTITION.remove();
    return partition;
  }

  /** Called by generated code when a partition begins. */
  @Override
  public void accept(int partition) {
    PARTITION.set(partition);
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
    int at = context.references().length();
    context.references().addOne(this);
    context.addPartitionInitializationStatement(
        "((java.util.function.IntConsumer) references[" + at + "]).accept(partitionIndex);");
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
