package org.clonos.spark.source;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.clonos.spark.release.SparkCalls;

/**
 * No rows, but every second a reason for a micro-batch, so that timers fire while nothing arrives: what Spark does for its
 * own stateful operators, which ask for batches without data.
 */
public final class TickSource implements TableProvider {
  private static final StructType SCHEMA = new StructType().add("second", DataTypes.LongType, false);

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Ticks();
  }

  private static final class Ticks implements Table, SupportsRead, Scan {
    @Override
    public String name() {
      return "clonos ticks";
    }

    @Override
    public String description() {
      return name();
    }

    @Override
    public Column[] columns() {
      return SparkCalls.columns(SCHEMA);
    }

    @Override
    public StructType readSchema() {
      return SCHEMA;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new TickStream();
    }
  }
}
