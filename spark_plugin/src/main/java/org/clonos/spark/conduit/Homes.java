package org.clonos.spark.conduit;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * On which of its servers an instance was at the end of an epoch: there its state is in memory when the next task of it
 * begins in this JVM. Instances that are where they begin take no room.
 */
final class Homes {
  private static final Map<String, Integer> ELSEWHERE = new ConcurrentHashMap<>();

  private Homes() {}

  static int of(StageSpec spec, TaskIdentity identity) {
    return ELSEWHERE.getOrDefault(key(spec, identity), 0);
  }

  static void remember(StageSpec spec, TaskIdentity identity, int server) {
    if (server == 0) {
      ELSEWHERE.remove(key(spec, identity));
    } else {
      ELSEWHERE.put(key(spec, identity), server);
    }
  }

  private static String key(StageSpec spec, TaskIdentity identity) {
    return spec.token() + " " + spec.generation() + " " + identity.node() + " " + identity.instance();
  }
}
