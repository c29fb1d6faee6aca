package org.clonos.spark.conduit;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.spark.SparkEnv;
import org.apache.spark.util.Utils;

/** What the compiled query says about one node of a layer; checked when it is parsed. */
public record StageSpec(
    int node,
    String name,
    List<ServerAddress> servers,
    List<List<Integer>> places,
    boolean passiveStandbys,
    Tls tls,
    String token,
    long generation,
    String mode,
    int parallelism,
    String spillDir,
    int bundleRows,
    long bundleBytes,
    int idleBundles,
    long flushMs,
    long inflightBytes,
    long tickMs,
    long heartbeatMs,
    long connectMs,
    int attempts,
    int[] route) {
  private static final long SETTLE_MS = 200;

  static StageSpec parse(JsonNode spec) {
    Tls tls = spec.hasNonNull("tls") ? tls(spec.get("tls")) : null;
    StageSpec parsed =
        new StageSpec(
            (int) number(spec, "node", null, 1, 63),
            text(spec, "name"),
            servers(spec, tls),
            places(spec),
            spec.path("passive_standbys").asBoolean(),
            tls,
            text(spec, "token"),
            number(spec, "generation", null, 0, Long.MAX_VALUE),
            text(spec, "mode"),
            (int) number(spec, "parallelism", null, 1, Integer.MAX_VALUE),
            spec.hasNonNull("spill_dir") ? text(spec, "spill_dir") : null,
            (int) number(spec, "bundle_rows", 4096L, 1, 1 << 20),
            number(spec, "bundle_bytes", 1L << 20, 1, 64 << 20),
            (int) number(spec, "idle_bundles", 1L, 1, 1 << 20),
            number(spec, "flush_ms", 5L, 0, 60_000),
            number(spec, "inflight_bytes", 64L << 20, 0, Long.MAX_VALUE),
            number(spec, "tick_ms", 20L, 1, 60_000),
            number(spec, "heartbeat_ms", 10_000L, 1, Long.MAX_VALUE / 2),
            number(spec, "connect_ms", 60_000L, 1, Long.MAX_VALUE / 2),
            (int) number(spec, "attempts", 4L, 0, 1000),
            route(spec));
    if (!parsed.mode.equals("microbatch") && !parsed.mode.equals("realtime")) {
      throw new IllegalArgumentException("mode must be microbatch or realtime, not '" + parsed.mode + "'");
    }
    return parsed;
  }

  /** Null where a server has not been reached yet. The first one is on the driver's host. */
  private static List<ServerAddress> servers(JsonNode spec, Tls tls) {
    List<ServerAddress> servers = new ArrayList<>();
    for (JsonNode said : spec.path("servers")) {
      servers.add(said.isNull() ? null : ServerAddress.parse(said, tls));
    }
    if (servers.isEmpty() || servers.get(0) == null) {
      throw new IllegalArgumentException("the stage's specification needs 'servers', and an address of the first");
    }
    return servers;
  }

  /** By instance, the numbers of the servers where it may be, in the order of preference. */
  private static List<List<Integer>> places(JsonNode spec) {
    List<List<Integer>> places = new ArrayList<>();
    for (JsonNode instance : spec.path("places")) {
      List<Integer> numbers = new ArrayList<>();
      instance.forEach(number -> numbers.add(number.intValue()));
      places.add(numbers);
    }
    return places;
  }

  /** By destination, as the replica numbers them, the partition of the next layer. */
  private static int[] route(JsonNode spec) {
    int[] route = new int[spec.path("route").size()];
    for (int i = 0; i < route.length; i++) {
      route[i] = spec.get("route").get(i).intValue();
    }
    return route;
  }

  private static Tls tls(JsonNode files) {
    return new Tls(text(files, "ca"), text(files, "cert"), text(files, "key"));
  }

  private static String text(JsonNode spec, String field) {
    JsonNode value = spec.get(field);
    if (value == null || !value.isTextual()) {
      throw new IllegalArgumentException("the stage's specification needs the text '" + field + "'");
    }
    return value.textValue();
  }

  private static long number(JsonNode spec, String field, Long absent, long low, long high) {
    JsonNode value = spec.get(field);
    if (value == null && absent != null) {
      return absent;
    }
    if (value == null || !value.isIntegralNumber() || value.longValue() < low || value.longValue() > high) {
      throw new IllegalArgumentException(
          "the stage's specification needs '" + field + "' between " + low + " and " + high + ", not " + value);
    }
    return value.longValue();
  }

  Limits limits(int standbys, long taskAttemptId, int firstServer) {
    return new Limits(
        Fence.first(generation, taskAttemptId), bundleRows, bundleBytes, idleBundles, flushMs, inflightBytes, tickMs,
        heartbeatMs, connectMs, attempts, standbys, passiveStandbys, SETTLE_MS, firstServer);
  }

  /**
   * Where an instance is, and where its standby is if it may have one: the replica near this process, or on the server
   * that is preferred; the standby on another host if there is one, else at least on another server.
   */
  List<ServerAddress> serversOf(int instance) {
    List<ServerAddress> may = new ArrayList<>();
    for (int number : instance < places.size() ? places.get(instance) : List.of(0)) {
      if (servers.get(number) != null) {
        may.add(servers.get(number));
      }
    }
    ServerAddress first = may.stream().filter(ServerAddress::isHere).findFirst().orElse(may.get(0));
    may.remove(first);
    return may.stream()
        .filter(server -> !Objects.equals(server.host(), first.host()))
        .findFirst()
        .or(() -> may.stream().findFirst())
        .map(second -> List.of(first, second))
        .orElse(List.of(first));
  }

  /** That of the executor, which Spark clears away with it, where the driver's host need not be this one. */
  Path spillPath() {
    return Path.of(spillDir != null ? spillDir : Utils.getLocalDir(SparkEnv.get().conf()));
  }
}
