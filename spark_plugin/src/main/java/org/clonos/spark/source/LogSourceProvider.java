package org.clonos.spark.source;

import java.nio.file.Path;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** {@code spark.readStream.format("clonos").load(path)}. */
public final class LogSourceProvider implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return "clonos";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return LogTable.SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    String path = options.get("path");
    if (path == null) {
      throw new IllegalArgumentException("the clonos source needs a path: .load(\"/directory/of/the/log\")");
    }
    // Executors may have another working directory than the driver.
    String directory = Path.of(path.replaceFirst("^file:(//)?(?=/)", "")).toAbsolutePath().toString();
    LogFormat.partitions(directory, options.getInt("partitions", 0));
    return new LogTable(directory);
  }
}
