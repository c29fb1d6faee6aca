package org.clonos.spark.source;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;

/** A range of one partition's file; in real-time mode the end is open. */
record LogPartition(String directory, int partition, long start, long end) implements InputPartition {
  static final long OPEN_END = Long.MAX_VALUE;

  /** How far a reader came. */
  record Reached(int partition, long position) implements PartitionOffset {
    private static final long serialVersionUID = 1L;
  }
}
