package org.clonos.spark.executor;

import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.util.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** How the service of an executor is started: {@code clonos standby}, which ends when its standard input does. */
record ServiceCommand(String python, String host, SparkConf conf, String token) {
  /** The service is the application's alone, and never has fewer slots than its instances ask for. */
  private static final int SLOTS = 1 << 20;

  private static final String TLS = "spark.clonos.tls.";
  private static final String METRICS = "spark.clonos.metrics.";
  private static final int OF_THE_DRIVER = 2; // its servers' pages have the ports before
  private static final String LOOPBACK = "127.0.0.1";
  private static final String EVERY_ADDRESS = "0.0.0.0";
  private static final String ANYONE = "none"; // instead of a token file: no token is asked for
  private static final int HIGHEST_PORT = 65_535;
  private static final Logger LOG = LoggerFactory.getLogger(ServiceCommand.class);

  Process start(int port, String name) throws IOException {
    Path folder = folder("clonos-" + name);
    Files.createDirectories(folder, only("rwx------"));
    return new ProcessBuilder(words(port, folder)).redirectErrorStream(true).start();
  }

  /** In a local directory of the executor, which Spark clears away; where a predecessor has had it, if it is there. */
  private Path folder(String name) {
    return Stream.of(Utils.getConfiguredLocalDirs(conf))
        .map(directory -> Path.of(directory, name))
        .filter(Files::isDirectory)
        .findFirst()
        .orElseGet(() -> Path.of(Utils.getLocalDir(conf), name));
  }

  private List<String> words(int port, Path folder) throws IOException {
    List<String> words = new ArrayList<>(List.of(python, "-P", "-m", "clonos.cli", "standby", "--until-eof"));
    words.addAll(List.of("--listen", host + ":" + port, "--data", folder.resolve("data").toString()));
    words.addAll(List.of("--slots", String.valueOf(SLOTS), "--token-file", tokenFile(folder).toString()));
    for (String file : List.of("ca", "cert", "key")) {
      String path = conf.get(TLS + file, "");
      if (!path.isBlank()) {
        words.addAll(List.of("--tls-" + file, path));
      }
    }
    words.addAll(metrics());
    return words;
  }

  /**
   * The page of metrics, where the session has one; at the executor's address where the driver's is one that others reach. A
   * service that cannot have it here goes without: standbys matter more.
   */
  private List<String> metrics() {
    String port = conf.get(METRICS + "port", "off").strip();
    if (!port.matches("\\d{1,5}")) { // off, or what the query will be refused for
      return List.of();
    }
    String wanted = conf.get(METRICS + "host", LOOPBACK).strip();
    boolean alone = isLoopback(wanted);
    String token = conf.get(METRICS + "token.file", "").strip();
    boolean open = token.isEmpty() || token.equals(ANYONE);
    if (token.isEmpty() && !alone || !open && !Files.isReadable(Path.of(token))) {
      LOG.warn("No page of metrics here: the token file '{}' of {}token.file cannot be read on this host", token, METRICS);
      return List.of();
    }
    int number = Integer.parseInt(port);
    int here = number == 0 || number + OF_THE_DRIVER > HIGHEST_PORT ? 0 : number + OF_THE_DRIVER;
    String at = alone ? LOOPBACK : wanted.equals(EVERY_ADDRESS) ? EVERY_ADDRESS : host;
    List<String> words = new ArrayList<>(List.of("--metrics", at + ":" + here));
    if (!token.isEmpty()) {
      words.addAll(List.of("--metrics-token-file", token));
    }
    return words;
  }

  private static boolean isLoopback(String host) {
    try {
      return InetAddress.getByName(host).isLoopbackAddress();
    } catch (UnknownHostException unknown) {
      return false;
    }
  }

  private Path tokenFile(Path folder) throws IOException {
    Path file = folder.resolve("token");
    Files.deleteIfExists(file);
    Files.createFile(file, only("rw-------"));
    return Files.writeString(file, token, StandardOpenOption.WRITE);
  }

  private static FileAttribute<?> only(String permissions) {
    return PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(permissions));
  }
}
