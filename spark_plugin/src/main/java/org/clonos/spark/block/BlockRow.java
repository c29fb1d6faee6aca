package org.clonos.spark.block;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** A row of an exchange between causal operators: where it goes, and a block. */
public final class BlockRow {
  public static final String DESTINATION = "_clonos_destination";
  public static final String BLOCK = "_clonos_block";
  public static final StructType SCHEMA =
      new StructType().add(DESTINATION, DataTypes.IntegerType, false).add(BLOCK, DataTypes.BinaryType, false);

  private BlockRow() {}

  public static InternalRow of(int destination, byte[] block) {
    return new GenericInternalRow(new Object[] {destination, block});
  }
}
