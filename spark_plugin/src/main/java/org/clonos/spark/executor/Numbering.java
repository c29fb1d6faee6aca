package org.clonos.spark.executor;

import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Where tasks ask the driver for the numbers of source channels. The driver that leads the query answers, when what it
 * says is durable. A table is named {@code QUERY/START/NODE}; of each query only the newest start is answered.
 */
public final class Numbering {
  private static final Map<String, Numbering> OPEN = new ConcurrentHashMap<>();
  private static final long ANSWER_SECONDS = 60;

  private final String query;
  private final long start;
  private final BlockingQueue<Request> requests = new LinkedBlockingQueue<>();
  private final Request end = new Request(0, "", 0);
  private volatile boolean closed;

  private Numbering(String query, long start) {
    this.query = query;
    this.start = start;
  }

  /** One name that a task asks for. */
  public static final class Request {
    private final int node;
    private final String name;
    private final long known;
    private final CompletableFuture<String[]> reply = new CompletableFuture<>();

    Request(int node, String name, long known) {
      this.node = node;
      this.name = name;
      this.known = known;
    }

    public int node() {
      return node;
    }

    public String name() {
      return name;
    }

    /** The first number of the table that the task has not been told. */
    public long known() {
      return known;
    }

    /** Names and numbers by turns: all entries of the table from the number known on. */
    public void answer(List<String> entries) {
      reply.complete(entries.toArray(new String[0]));
    }

    public void refuse(String error, String message) {
      reply.complete(new String[] {error, message, ""});
    }
  }

  /** From now on this start of the query is answered, and no earlier one. */
  public static Numbering open(String query, long start) {
    Numbering opened = new Numbering(query, start);
    Numbering before = OPEN.put(query, opened);
    if (before != null) {
      before.close();
    }
    return opened;
  }

  /** The next one, or null when no more requests come. */
  public Request next() throws InterruptedException {
    Request request = requests.take();
    return request == end ? null : request;
  }

  /** Tasks that wait are refused. */
  public void close() {
    closed = true;
    OPEN.remove(query, this);
    for (Request left = requests.poll(); left != null; left = requests.poll()) {
      refuseLate(left);
    }
    requests.add(end);
  }

  private static void refuseLate(Request request) {
    request.refuse("Fenced", "this start of the query is not the last any more");
  }

  /** Entries as {@link Request#answer} gives them, or error, message and one more field. */
  static String[] ask(String table, String name, long known) throws InterruptedException {
    String[] parts = table.split("/");
    Numbering open = OPEN.get(parts[0]);
    Request request = new Request(Integer.parseInt(parts[2]), name, known);
    if (open == null || open.start != Long.parseLong(parts[1])) {
      refuseLate(request);
    } else {
      open.requests.add(request);
      if (open.closed) { // it may have looked for the last time before this one came
        refuseLate(request);
      }
    }
    try {
      return request.reply.get(ANSWER_SECONDS, TimeUnit.SECONDS);
    } catch (TimeoutException late) {
      return new String[] {
        "StorageUnavailable", "no number for channel '" + name + "' within " + ANSWER_SECONDS + " s", ""
      };
    } catch (ExecutionException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
