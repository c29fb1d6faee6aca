package org.clonos.spark.ui;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * The process that serves the page. It is started by the first who asks for its address, again when it has ended or when
 * there are more queries to show, and ends with this process, of which it holds a pipe.
 */
final class PageProcess {
  /** Of the application's queries the last so many are shown. */
  private static final int SHOWN = 20;

  private static final int TOKEN_BYTES = 32;

  private final List<String> command;
  private final Set<String> checkpoints = new LinkedHashSet<>();
  private List<String> served = List.of();
  private Process process;
  private Address address;

  /** Where it listens, and what it wants to be told. */
  record Address(URI url, String token) {}

  PageProcess(List<String> command) {
    this.command = List.copyOf(command);
  }

  synchronized void show(String checkpoint) {
    checkpoints.remove(checkpoint);
    checkpoints.add(checkpoint);
    if (checkpoints.size() > SHOWN) {
      checkpoints.remove(checkpoints.iterator().next());
    }
  }

  synchronized Address address() throws IOException {
    List<String> wanted = List.copyOf(checkpoints);
    if (process == null || !process.isAlive() || !wanted.equals(served)) {
      if (process != null) {
        process.destroy();
      }
      address = start(wanted);
      served = wanted;
    }
    return address;
  }

  private Address start(List<String> shown) throws IOException {
    byte[] random = new byte[TOKEN_BYTES];
    new SecureRandom().nextBytes(random);
    String token = HexFormat.of().formatHex(random);
    Path file =
        Files.createTempFile(
            "clonos-page", ".token", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    try {
      Files.writeString(file, token);
      List<String> whole = new ArrayList<>(command);
      whole.addAll(List.of("--port", "0", "--until-eof", "--token-file", file.toString()));
      whole.addAll(shown);
      process = new ProcessBuilder(whole).redirectError(ProcessBuilder.Redirect.INHERIT).start();
      String line = process.inputReader().readLine();
      if (line == null) {
        throw new IOException("its process ended at once; its standard error is the driver's");
      }
      return new Address(URI.create(line.replaceFirst("\\?.*", "")), token);
    } finally {
      Files.delete(file);
    }
  }
}
