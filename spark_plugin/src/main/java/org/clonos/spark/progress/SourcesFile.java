package org.clonos.spark.progress;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import org.apache.spark.sql.streaming.SourceProgress;

/**
 * What Spark says of a query's sources behind each batch, as a file for those who look at the query from other
 * processes: JSON with {@code version}, {@code at} (seconds since 1970) and {@code sources}, each with its {@code node}
 * and Spark's own {@code progress}. It appears whole. Where it is not known which source is of which node there are
 * none.
 */
final class SourcesFile {
  private static final int VERSION = 1;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path path;
  private final List<Integer> nodes;

  /** {@code nodes} are those of the sources, in the order of the plan. */
  SourcesFile(Path path, List<Integer> nodes) {
    this.path = path;
    this.nodes = nodes;
  }

  void write(SourceProgress[] sources) throws IOException {
    ObjectNode said = JSON.createObjectNode();
    said.put("version", VERSION);
    said.put("at", System.currentTimeMillis() / 1000.0);
    ArrayNode all = said.putArray("sources");
    for (int i = 0; i < sources.length && sources.length == nodes.size(); i++) {
      all.addObject().put("node", nodes.get(i)).set("progress", parsed(sources[i]));
    }
    Path made = path.resolveSibling(path.getFileName() + ".new");
    Files.writeString(made, JSON.writeValueAsString(said));
    Files.move(made, path, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
  }

  private static JsonNode parsed(SourceProgress source) throws JsonProcessingException {
    return JSON.readTree(source.json());
  }
}
