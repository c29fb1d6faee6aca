package org.clonos.spark.executor;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Which executors have a replica service, and where: what Spark says of executors and what they say of themselves, put
 * together in whatever order it comes.
 *
 * <p>The place of a service, a port of a host, outlives its executor for a while: the executor that follows on the same
 * host takes it over, so that a query that knows the place finds a service there again, and with it the folder, where
 * the logs of queries may still be.
 */
public final class Services {
  private static volatile Services current;

  private final String token;
  private final long keptNanos;
  private final Map<String, Executor> executors = new LinkedHashMap<>();
  private final Map<String, Vacancy> vacated = new LinkedHashMap<>();
  private final Set<String> removed = new HashSet<>();

  private record Vacancy(String folder, long since) {}

  private static final class Executor {
    String host;
    String place;
    String folder;
    String refusal;
    boolean known;

    boolean hasAnswered() {
      return place != null || refusal != null;
    }
  }

  public Services(String token, long keptMillis) {
    this.token = token;
    this.keptNanos = TimeUnit.MILLISECONDS.toNanos(keptMillis);
  }

  /** Those of the Spark context of this JVM; null where executors have none. */
  public static Services current() {
    return current;
  }

  static void publish(Services services) {
    current = services;
  }

  /** What the services want to be shown. */
  public String token() {
    return token;
  }

  // ------------------------------------------------------------- what is heard

  public synchronized void added(String executor, String host) {
    Executor one = of(executor);
    if (one != null) {
      one.host = host;
      one.known = true;
      notifyAll();
    }
  }

  public synchronized void removed(String executor) {
    removed.add(executor);
    Executor one = executors.remove(executor);
    if (one != null && one.place != null) {
      vacated.put(one.place, new Vacancy(one.folder, System.nanoTime()));
    }
    notifyAll();
  }

  public synchronized void up(String executor, String host, int port) {
    Executor one = of(executor);
    if (one != null) {
      one.place = host + ":" + port;
      one.refusal = null;
      vacated.remove(one.place);
      notifyAll();
    }
  }

  /** A service that was there keeps its place: it is started again. */
  public synchronized void down(String executor, String host, String why) {
    Executor one = of(executor);
    if (one != null) {
      one.host = host;
      one.refusal = why;
      notifyAll();
    }
  }

  /**
   * Where this executor's service is to be: {@code PORT FOLDER} of a place on its host that no executor has now, else
   * port 0 and a folder of its own.
   */
  public synchronized String settle(String executor, String host) {
    forgetOld();
    Executor one = of(executor);
    for (String place : List.copyOf(vacated.keySet())) {
      int colon = place.lastIndexOf(':');
      if (one != null && place.substring(0, colon).equals(host)) {
        one.place = place;
        one.folder = vacated.remove(place).folder;
        return place.substring(colon + 1) + " " + one.folder;
      }
    }
    return "0 " + executor;
  }

  private Executor of(String executor) {
    return removed.contains(executor) ? null : executors.computeIfAbsent(executor, Services::unsettled);
  }

  private static Executor unsettled(String executor) {
    Executor one = new Executor();
    one.folder = executor;
    return one;
  }

  private void forgetOld() {
    vacated.values().removeIf(vacancy -> System.nanoTime() - vacancy.since > keptNanos);
  }

  // ------------------------------------------------------------- what is known

  /**
   * Waits until so many executors are there and all of them have answered, whether with a service or without; whether
   * that came about.
   */
  public synchronized boolean awaitAnswers(int least, long millis) throws InterruptedException {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    while (known() < least || !unanswered().isEmpty()) {
      long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
      if (left <= 0) {
        return false;
      }
      wait(left);
    }
    return true;
  }

  private int known() {
    return (int) executors.values().stream().filter(one -> one.known).count();
  }

  /** {@code HOST:PORT} of each service, those included whose executor may be followed by another one. */
  public synchronized List<String> places() {
    forgetOld();
    List<String> found = new ArrayList<>();
    executors.values().stream().filter(one -> one.place != null).forEach(one -> found.add(one.place));
    found.addAll(vacated.keySet());
    return found;
  }

  /** Executors of which nothing has been heard. */
  public synchronized List<String> unanswered() {
    List<String> found = new ArrayList<>();
    executors.forEach((id, one) -> {
      if (one.known && !one.hasAnswered()) {
        found.add("executor " + id + " on " + one.host);
      }
    });
    return found;
  }

  /** Executors without a service, and why. */
  public synchronized List<String> refusals() {
    List<String> found = new ArrayList<>();
    executors.forEach((id, one) -> {
      if (one.refusal != null) {
        found.add("executor " + id + " on " + one.host + ": " + one.refusal);
      }
    });
    return found;
  }
}
