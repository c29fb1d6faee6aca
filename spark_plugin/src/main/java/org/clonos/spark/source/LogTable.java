package org.clonos.spark.source;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.clonos.spark.release.SparkCalls;

/**
 * The log as a table. A record's identity is there twice: as the columns {@code partition} and {@code position}, and
 * as metadata columns, which a query can still ask for after it projected everything else away. A row always carries
 * both; Spark reads the part it declared.
 */
final class LogTable implements Table, SupportsRead, SupportsMetadataColumns {
  static final StructType SCHEMA =
      new StructType()
          .add("value", DataTypes.BinaryType, false)
          .add("partition", DataTypes.IntegerType, false)
          .add("position", DataTypes.LongType, false)
          .add("timestamp", DataTypes.TimestampType, false);

  private record Identity(String name, DataType dataType, String comment) implements MetadataColumn {
    @Override
    public boolean isNullable() {
      return false;
    }
  }

  private final String directory;

  LogTable(String directory) {
    this.directory = directory;
  }

  @Override
  public String name() {
    return "clonos log " + directory;
  }

  @Override
  public Column[] columns() {
    return SparkCalls.columns(SCHEMA);
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.MICRO_BATCH_READ);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[] {
      new Identity("_clonos_source_partition", DataTypes.IntegerType, "partition of the embedded log"),
      new Identity("_clonos_source_position", DataTypes.LongType, "byte offset of the entry in its partition")
    };
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    ReadLimit limit = limit(options);
    int partitions = LogFormat.partitions(directory, options.getInt("partitions", 0));
    return () ->
        new Scan() {
          @Override
          public StructType readSchema() {
            return SCHEMA;
          }

          @Override
          public String description() {
            return name();
          }

          @Override
          public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new LogStream(directory, partitions, limit, options.getBoolean("ownOutput", false));
          }
        };
  }

  private static ReadLimit limit(CaseInsensitiveStringMap options) {
    long bytes = options.getLong("maxBytesPerTrigger", 0);
    long rows = options.getLong("maxRecordsPerBatch", 0);
    if (bytes < 0 || rows < 0 || (bytes > 0 && rows > 0)) {
      throw new IllegalArgumentException("maxBytesPerTrigger or maxRecordsPerBatch may be given, as a positive number");
    }
    if (bytes > 0) {
      return ReadLimit.maxBytes(bytes);
    }
    return rows > 0 ? ReadLimit.maxRows(rows) : ReadLimit.allAvailable();
  }
}
