package org.clonos.spark.conduit;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
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

  private final Selector selector;
  private final ArrayDeque<ByteBuffer> outgoing = new ArrayDeque<>();
  private SocketChannel channel;
  private SelectionKey key;
  private FrameReader reader;
  private boolean writable;
  private boolean reading;

  Link(Selector selector) {
    this.selector = selector;
  }

  /** Checks an address of the form {@code unix:/path} or {@code tcp:host:port}. */
  static void check(String address) {
    boolean tcp = address.matches("tcp:.+:\\d{1,5}");
    if (!tcp && !address.matches("unix:/.+")) {
      throw new IllegalArgumentException("socket must be unix:/path or tcp:host:port, not '" + address + "'");
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
    boolean connected;
    if (address.startsWith("unix:")) {
      connected = channel.connect(UnixDomainSocketAddress.of(address.substring(5)));
    } else {
      int colon = address.lastIndexOf(':');
      connected =
          channel.connect(
              new InetSocketAddress(address.substring(4, colon), Integer.parseInt(address.substring(colon + 1))));
    }
    key = channel.register(selector, connected ? SelectionKey.OP_READ : SelectionKey.OP_CONNECT);
    return connected;
  }

  /** True once a connection that was begun stands. */
  boolean finishConnect() throws IOException {
    boolean connected = channel.finishConnect();
    if (connected) {
      key.interestOps(SelectionKey.OP_READ);
    }
    return connected;
  }

  boolean open() {
    return channel != null && channel.isConnected();
  }

  boolean connecting() {
    return channel != null && channel.isConnectionPending();
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
    return !outgoing.isEmpty();
  }

  void send(byte[] frame) {
    if (writable) {
      outgoing.add(ByteBuffer.wrap(frame));
    }
  }

  /** Writes what the peer takes now. */
  void flush() {
    try {
      while (!outgoing.isEmpty()) {
        ByteBuffer head = outgoing.peek();
        int end = head.limit();
        head.limit(Math.min(end, head.position() + WRITE_CHUNK));
        int written = channel.write(head);
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
    int wanted = (reading ? SelectionKey.OP_READ : 0) | (outgoing.isEmpty() ? 0 : SelectionKey.OP_WRITE);
    if (key.isValid() && key.interestOps() != wanted) {
      key.interestOps(wanted);
    }
  }

  /** Reads once; -1 at the end of the stream. */
  int fill() throws IOException {
    return reader.fill(channel);
  }

  FrameReader.Frame next() throws BadFrame {
    return reader.next();
  }

  /** Closes the connection, not the selector. */
  void disconnect() {
    close(channel);
    channel = null;
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
