package org.clonos.spark.executor;

import java.io.BufferedReader;
import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.api.plugin.PluginContext;
import org.clonos.spark.executor.Message.Kind;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the service running, at the same port where that is free, and tells the driver.
 *
 * <p>The service reads from a pipe of which this process has the other end: however the executor ends, the service notices
 * and ends in order. In the other direction the end of what it writes is the end of the service.
 */
final class ServiceKeeper extends Thread {
  private static final Logger LOG = LoggerFactory.getLogger(ServiceKeeper.class);
  private static final Pattern ADDRESS = Pattern.compile("replica service at .*:(\\d+), .*");
  private static final long LONGEST_PAUSE_SECONDS = 30;
  private static final long END_SECONDS = 10;

  /** A port that is taken for so many attempts belongs to another process now. */
  private static final int ATTEMPTS_AT_PORT = 3;

  private final ServiceCommand command;
  private final PluginContext context;
  private final CountDownLatch closed = new CountDownLatch(1);
  private Process process;

  ServiceKeeper(ServiceCommand command, PluginContext context) {
    super("clonos-service");
    setDaemon(true);
    this.command = command;
    this.context = context;
  }

  @Override
  public void run() {
    try {
      String[] where = where().split(" ");
      int port = Integer.parseInt(where[0]);
      int failures = 0;
      while (isOpen()) {
        Outcome outcome = runOnce(failures < ATTEMPTS_AT_PORT ? port : 0, where[1]);
        if (!isOpen()) {
          return;
        }
        failures = outcome.port > 0 ? 1 : failures + 1;
        port = outcome.port > 0 ? outcome.port : port;
        long pause = Math.min(1L << Math.min(failures - 1, 10), LONGEST_PAUSE_SECONDS);
        String why = outcome.why + "; trying again in " + pause + " s";
        LOG.warn("This executor is without its replica service: {}", why);
        tell(Kind.DOWN, why);
        if (closed.await(pause, TimeUnit.SECONDS)) {
          return;
        }
      }
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  /** How a process of the service ended, and at which port it had listened: 0 if it had not come so far. */
  private record Outcome(int port, String why) {}

  private Outcome runOnce(int wanted, String folder) throws InterruptedException {
    int port = 0;
    String last = "it said nothing";
    Process running;
    try {
      running = begin(wanted, folder);
    } catch (IOException error) {
      return new Outcome(0, "it cannot be started: " + error.getMessage());
    }
    try (BufferedReader said = running.inputReader()) {
      for (String line = said.readLine(); line != null; line = said.readLine()) {
        Matcher address = ADDRESS.matcher(line);
        if (port == 0 && address.matches()) {
          port = Integer.parseInt(address.group(1));
          LOG.info("The replica service of this executor is process {}, port {}", running.pid(), port);
          tell(Kind.UP, String.valueOf(port));
        } else if (!line.isBlank()) {
          last = line;
          System.err.println(line);
        }
      }
    } catch (IOException error) {
      last = "what it says cannot be read: " + error.getMessage();
    }
    end(running);
    return new Outcome(port, "it ended with status " + running.waitFor() + "; last it said: " + last);
  }

  private synchronized Process begin(int port, String folder) throws IOException {
    process = command.start(port, folder);
    if (!isOpen()) {
      process.destroy();
    }
    return process;
  }

  private boolean isOpen() {
    return closed.getCount() > 0;
  }

  /** The service is gone when this returns, or its end has begun. */
  void close() {
    closed.countDown();
    Process running;
    synchronized (this) {
      running = process;
    }
    if (running != null) {
      try {
        end(running);
      } catch (InterruptedException hurry) {
        running.destroyForcibly();
        Thread.currentThread().interrupt();
      }
    }
  }

  private static void end(Process running) throws InterruptedException {
    try {
      running.getOutputStream().close();
    } catch (IOException gone) {
      LOG.debug("The replica service has gone before", gone);
    }
    if (!running.waitFor(END_SECONDS, TimeUnit.SECONDS)) {
      running.destroyForcibly();
    }
  }

  // ------------------------------------------------------------------ the driver

  private String where() {
    try {
      return (String) context.ask(message(Kind.WHERE, ""));
    } catch (Exception error) {
      LOG.warn("The driver does not say where the replica service is to be: {}", error.toString());
      return "0 " + context.executorID();
    }
  }

  private void tell(Kind kind, String text) {
    try {
      context.ask(message(kind, text));
    } catch (Exception error) {
      LOG.warn("The driver cannot be told of the replica service: {}", error.toString());
    }
  }

  private String[] message(Kind kind, String text) {
    return new Message(kind, context.executorID(), command.host(), text).toStrings();
  }
}
