package org.clonos.spark.conduit;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What the compiled query says about one stage; checked when it is parsed. */
public record StageSpec(
    int node,
    String name,
    StructType outputSchema,
    String socket,
    List<String> standbySockets,
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
    int attempts) {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static StageSpec parse(String json) {
    JsonNode spec;
    try {
      spec = JSON.readTree(json);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("the stage's specification is not JSON: " + e.getOriginalMessage());
    }
    StageSpec parsed =
        new StageSpec(
            (int) number(spec, "node", null, 1, 63),
            text(spec, "name"),
            (StructType) DataType.fromJson(text(spec, "output_schema")),
            text(spec, "socket"),
            standbySockets(spec),
            spec.path("passive_standbys").asBoolean(),
            spec.hasNonNull("tls") ? tls(spec.get("tls")) : null,
            text(spec, "token"),
            number(spec, "generation", null, 0, 0x7fff),
            text(spec, "mode"),
            (int) number(spec, "parallelism", null, 1, Integer.MAX_VALUE),
            text(spec, "spill_dir"),
            (int) number(spec, "bundle_rows", 4096L, 1, 1 << 20),
            number(spec, "bundle_bytes", 1L << 20, 1, 64 << 20),
            (int) number(spec, "idle_bundles", 1L, 1, 1 << 20),
            number(spec, "flush_ms", 5L, 0, 60_000),
            number(spec, "inflight_bytes", 64L << 20, 0, Long.MAX_VALUE),
            number(spec, "tick_ms", 20L, 1, 60_000),
            number(spec, "heartbeat_ms", 10_000L, 1, Long.MAX_VALUE / 2),
            number(spec, "connect_ms", 60_000L, 1, Long.MAX_VALUE / 2),
            (int) number(spec, "attempts", 3L, 0, 1000));
    check(parsed.socket, parsed.tls);
    parsed.standbySockets.stream().filter(Objects::nonNull).forEach(address -> check(address, parsed.tls));
    if (!parsed.mode.equals("microbatch") && !parsed.mode.equals("realtime")) {
      throw new IllegalArgumentException("mode must be microbatch or realtime, not '" + parsed.mode + "'");
    }
    return parsed;
  }

  /** One per instance, null where an instance has no standby. */
  private static List<String> standbySockets(JsonNode spec) {
    List<String> sockets = new ArrayList<>();
    for (JsonNode socket : spec.path("standby_sockets")) {
      sockets.add(socket.textValue());
    }
    return sockets;
  }

  private static void check(String address, Tls tls) {
    Link.check(address);
    if (address.startsWith("tls:") && tls == null) {
      throw new IllegalArgumentException("the stage's specification has the socket '" + address + "' and no 'tls'");
    }
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

  Limits limits(int instance, long taskAttemptId, int firstServer) {
    long fenceBase = generation << 48 | (taskAttemptId & 0xffffffffL) << 16;
    return new Limits(
        fenceBase, bundleRows, bundleBytes, idleBundles, flushMs, inflightBytes, tickMs, heartbeatMs, connectMs,
        attempts, standbySocket(instance) == null ? 0 : 1, passiveStandbys, firstServer);
  }

  /** Where a replica server of an instance listens: 0 or, with standbys, 1. */
  String socket(int instance, int server) {
    return server == 0 ? socket : standbySocket(instance);
  }

  private String standbySocket(int instance) {
    return instance < standbySockets.size() ? standbySockets.get(instance) : null;
  }

  Path spillPath() {
    return Path.of(spillDir);
  }
}
