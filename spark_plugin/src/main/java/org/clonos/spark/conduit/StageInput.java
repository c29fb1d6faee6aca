package org.clonos.spark.conduit;

import java.io.Serializable;
import org.apache.spark.sql.types.StructType;

/** The columns of a bundle, and where in the rows that Spark delivers each of them stands. */
public record StageInput(StructType schema, int[] ordinals) implements Serializable {
  private static final long serialVersionUID = 1L;
}
