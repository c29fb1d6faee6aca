package org.clonos.spark.conduit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;
import org.clonos.spark.task.CausalStageException;

/**
 * What the compiled query says about a layer, which is one stage of Spark: its nodes, and what each partition is. That is
 * an instance of one of them, or hands blocks on to a partition of the next layer.
 */
public record LayerSpec(List<StageSpec> nodes, List<Partition> partitions) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Instance {@code number} of a node; where {@code node} is negative, a forwarder to partition {@code number}. */
  public record Partition(int node, int number) {
    public boolean forwards() {
      return node < 0;
    }
  }

  public static LayerSpec parse(String json) {
    JsonNode spec;
    try {
      spec = JSON.readTree(json);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("the layer's specification is not JSON: " + e.getOriginalMessage());
    }
    List<StageSpec> nodes = new ArrayList<>();
    spec.path("nodes").forEach(node -> nodes.add(StageSpec.parse(node)));
    List<Partition> partitions = new ArrayList<>();
    for (JsonNode said : spec.path("partitions")) {
      Partition partition = new Partition(said.path(0).asInt(), said.path(1).asInt());
      if (partition.node() >= nodes.size() || partition.number() < 0) {
        throw new IllegalArgumentException("the layer's specification has the partition " + said);
      }
      partitions.add(partition);
    }
    if (nodes.isEmpty() || partitions.isEmpty()) {
      throw new IllegalArgumentException("the layer's specification needs 'nodes' and 'partitions'");
    }
    return new LayerSpec(nodes, partitions);
  }

  /** What the current task is. */
  public Partition of(TaskContext task) {
    if (task.numPartitions() != partitions.size()) {
      throw new CausalStageException(
          "ConfigurationError",
          "a stage with operator '" + nodes.get(0).name() + "' was compiled for " + partitions.size()
              + " instances, Spark runs " + task.numPartitions()
              + " partitions: its input was repartitioned after it was compiled");
    }
    return partitions.get(task.partitionId());
  }
}
