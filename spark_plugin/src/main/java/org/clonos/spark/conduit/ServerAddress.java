package org.clonos.spark.conduit;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.SparkEnv;

/**
 * Where a replica server listens: {@code near} for conduits on its own host, {@code far} for all others. Hosts are told
 * apart by the names that Spark gives them; behind one name there may still be several file systems, and the socket has
 * to be in this one. Either may be null, and so may the host where {@code near} is all there is.
 */
record ServerAddress(String host, String near, String far) {
  private static final String UNIX = "unix:";

  static ServerAddress parse(JsonNode said, Tls tls) {
    ServerAddress parsed = new ServerAddress(text(said, "host"), text(said, "near"), text(said, "far"));
    if (parsed.near == null && parsed.far == null) {
      throw new IllegalArgumentException("a server's address needs 'near' or 'far', not " + said);
    }
    check(parsed.near, true, tls);
    check(parsed.far, false, tls);
    return parsed;
  }

  private static String text(JsonNode said, String field) {
    return said.path(field).textValue();
  }

  private static void check(String address, boolean near, Tls tls) {
    if (address == null) {
      return;
    }
    Link.check(address);
    if (address.startsWith(UNIX) != near) {
      throw new IllegalArgumentException("a server is near by a Unix socket and far over TCP, not '" + address + "'");
    }
    if (address.startsWith("tls:") && tls == null) {
      throw new IllegalArgumentException("the stage's specification has the address '" + address + "' and no 'tls'");
    }
  }

  /** How this process gets there. */
  String fromHere() {
    return far == null || near != null && isHere() ? near : far;
  }

  /** Whether the server is on the host of this process. */
  boolean isHere() {
    String here = hostOfThisProcess();
    boolean named = here != null && here.equals(host);
    return named && (near == null || Files.exists(Path.of(near.substring(UNIX.length()))));
  }

  private static String hostOfThisProcess() {
    SparkEnv spark = SparkEnv.get();
    return spark == null ? null : spark.blockManager().blockManagerId().host();
  }
}
