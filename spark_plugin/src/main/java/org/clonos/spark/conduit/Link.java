package org.clonos.spark.conduit;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;

/**
 * One non-blocking connection at a time, in the selector that the conduit's thread sleeps in. When the peer no longer
 * takes bytes, reading goes on until the stream ends: what it said before it went (an error, output) counts.
 */
final class Link {
  private static final int WRITE_CHUNK = 256 << 10;

  private static final long CONNECT_MS = 10_000;

  private final Selector selector;
  private final Tls files;
  private final ArrayDeque<ByteBuffer> outgoing = new ArrayDeque<>();
  private SocketChannel channel;
  private TlsChannel tls;
  private ByteChannel stream;
  private boolean shaken;
  private long dueAt = Long.MAX_VALUE;
  private SelectionKey key;
  private FrameReader reader;
  private boolean writable;
  private boolean reading;

  /** The TLS files may be null where no address wants them. */
  Link(Selector selector, Tls files) {
    this.selector = selector;
    this.files = files;
  }

  /** Checks an address of the form {@code unix:/path}, {@code tcp:host:port} or {@code tls:host:port}. */
  static void check(String address) {
    boolean tcp = address.matches("(tcp|tls):.+:\\d{1,5}");
    if (!tcp && !address.matches("unix:/.+")) {
      throw new IllegalArgumentException(
          "socket must be unix:/path, tcp:host:port or tls:host:port, not '" + address + "'");
    }
  }

  /** Begins to connect; true when the connection stands at once. */
  boolean connect(String address) throws IOException {
    close(channel);
    if (address.startsWith("unix:")) {
      channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    } else {
      channel = SocketChannel.open();
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
    }
    channel.configureBlocking(false);
    reader = new FrameReader();
    outgoing.clear();
    writable = true;
    reading = true;
    stream = channel;
    tls = null;
    shaken = true;
    boolean connected;
    if (address.startsWith("unix:")) {
      connected = channel.connect(UnixDomainSocketAddress.of(address.substring(5)));
    } else {
      int colon = address.lastIndexOf(':');
      String host = address.substring(4, colon);
      int port = Integer.parseInt(address.substring(colon + 1));
      if (address.startsWith("tls:")) {
        stream = tls = new TlsChannel(channel, files.engine(host, port));
        shaken = false;
      }
      dueAt = now() + CONNECT_MS;
      connected = channel.connect(new InetSocketAddress(host, port));
    }
    key = channel.register(selector, connected ? SelectionKey.OP_READ : SelectionKey.OP_CONNECT);
    return connected && finishConnect();
  }

  /** Goes on with a connection that was begun; true once it stands. */
  boolean finishConnect() throws IOException {
    if (!channel.isConnected() && !channel.finishConnect()) {
      return begun("connection");
    }
    if (!shaken) {
      shaken = tls.handshake();
      interest();
      if (!shaken) {
        return begun("TLS handshake");
      }
    }
    dueAt = Long.MAX_VALUE;
    interest();
    return true;
  }

  private boolean begun(String what) throws IOException {
    if (now() >= dueAt) {
      throw new SocketTimeoutException("no " + what + " within " + CONNECT_MS + " ms");
    }
    return false;
  }

  /** When a connection that is being made is given up, in milliseconds of {@link System#nanoTime}. */
  long dueAt() {
    return dueAt;
  }

  private static long now() {
    return System.nanoTime() / 1_000_000;
  }

  boolean open() {
    return channel != null && channel.isConnected() && shaken;
  }

  boolean connecting() {
    return channel != null && (channel.isConnectionPending() || !shaken);
  }

  boolean reading() {
    return reading;
  }

  void reading(boolean wanted) {
    reading = wanted;
    interest();
  }

  /** Bytes wait to be written. */
  boolean backlog() {
    return !outgoing.isEmpty() || (writable && tls != null && tls.pending());
  }

  void send(byte[] frame) {
    if (writable) {
      outgoing.add(ByteBuffer.wrap(frame));
    }
  }

  /** Writes what the peer takes now. */
  void flush() {
    try {
      if (tls != null) {
        tls.flush();
      }
      while (!outgoing.isEmpty()) {
        ByteBuffer head = outgoing.peek();
        int end = head.limit();
        head.limit(Math.min(end, head.position() + WRITE_CHUNK));
        int written = stream.write(head);
        head.limit(end);
        if (!head.hasRemaining()) {
          outgoing.poll();
        } else if (written == 0) {
          break;
        }
      }
    } catch (IOException e) {
      writable = false;
      outgoing.clear();
    }
    interest();
  }

  private void interest() {
    int wanted = (reading ? SelectionKey.OP_READ : 0) | (backlog() ? SelectionKey.OP_WRITE : 0);
    if (key.isValid() && key.interestOps() != wanted) {
      key.interestOps(wanted);
    }
  }

  /** Reads once; -1 at the end of the stream. */
  int fill() throws IOException {
    return reader.fill(stream);
  }

  FrameReader.Frame next() throws BadFrame {
    return reader.next();
  }

  /** Closes the connection, not the selector. */
  void disconnect() {
    close(channel);
    channel = null;
    dueAt = Long.MAX_VALUE;
    outgoing.clear();
  }

  private void close(SocketChannel old) {
    if (old != null) {
      try {
        old.close();
        selector.selectNow();
      } catch (IOException e) {
        // The connection is gone either way.
      }
    }
  }
}
