package org.clonos.spark.conduit;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.SocketChannel;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLException;

/**
 * TLS over a non-blocking socket: reads and writes do what can be done now, like those of the socket itself. A read takes
 * everything that has been received, so that a selector on the socket says when there is more; what a write could not get
 * rid of stays here until {@link #flush}.
 */
final class TlsChannel implements ByteChannel {
  private static final int BUFFER = 128 << 10;
  private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

  private final SocketChannel channel;
  private final SSLEngine engine;
  private final ByteBuffer received = ByteBuffer.allocateDirect(BUFFER);
  private final ByteBuffer toSend = ByteBuffer.allocateDirect(BUFFER).limit(0);
  private final int packet;
  private final int room;

  TlsChannel(SocketChannel channel, SSLEngine engine) throws SSLException {
    this.channel = channel;
    this.engine = engine;
    packet = engine.getSession().getPacketBufferSize();
    room = engine.getSession().getApplicationBufferSize();
    engine.beginHandshake();
  }

  /** Goes on with the handshake; true once it is done. */
  boolean handshake() throws IOException {
    while (true) {
      switch (engine.getHandshakeStatus()) {
        case NEED_TASK -> engine.getDelegatedTask().run();
        case NEED_WRAP -> {
          if (!flush()) {
            return false;
          }
          wrap(NOTHING);
        }
        case NEED_UNWRAP, NEED_UNWRAP_AGAIN -> {
          if (!flush()) {
            return false;
          }
          ByteBuffer none = ByteBuffer.allocate(room);
          SSLEngineResult result = unwrap(none);
          if (none.position() > 0) {
            throw new SSLException("data before the end of the handshake");
          }
          if (result.getStatus() == SSLEngineResult.Status.CLOSED) {
            throw new EOFException("the peer ended the handshake");
          }
          if (result.getStatus() == SSLEngineResult.Status.BUFFER_UNDERFLOW) {
            int count = channel.read(received);
            if (count < 0) {
              throw new EOFException("the peer closed the connection during the handshake");
            }
            if (count == 0) {
              return false;
            }
          }
        }
        default -> {
          return flush();
        }
      }
    }
  }

  /** Needs room for the largest record; gives what is there. */
  @Override
  public int read(ByteBuffer target) throws IOException {
    int before = target.position();
    while (target.remaining() >= room) {
      SSLEngineResult result = unwrap(target);
      afterwards();
      if (result.getStatus() == SSLEngineResult.Status.CLOSED) {
        return target.position() > before ? target.position() - before : -1;
      }
      if (result.getStatus() == SSLEngineResult.Status.BUFFER_UNDERFLOW) {
        if (target.position() > before) {
          break;
        }
        int count = channel.read(received);
        if (count <= 0) {
          return count;
        }
      }
    }
    return target.position() - before;
  }

  /** A peer may renew its keys at any time, and wants an answer. */
  private void afterwards() throws IOException {
    HandshakeStatus status;
    while ((status = engine.getHandshakeStatus()) == HandshakeStatus.NEED_TASK || status == HandshakeStatus.NEED_WRAP) {
      if (status == HandshakeStatus.NEED_TASK) {
        engine.getDelegatedTask().run();
      } else {
        wrap(NOTHING);
        if (!flush() && toSend.remaining() > BUFFER - packet) {
          throw new SSLException("the peer asks for new keys and takes none");
        }
      }
    }
  }

  private SSLEngineResult unwrap(ByteBuffer target) throws IOException {
    received.flip();
    try {
      return engine.unwrap(received, target);
    } finally {
      received.compact();
    }
  }

  private int wrap(ByteBuffer source) throws IOException {
    toSend.compact();
    try {
      return engine.wrap(source, toSend).bytesConsumed();
    } finally {
      toSend.flip();
    }
  }

  /** How many bytes were taken; 0 while earlier ones wait. */
  @Override
  public int write(ByteBuffer source) throws IOException {
    int taken = 0;
    while (flush() && source.hasRemaining()) {
      while (source.hasRemaining() && BUFFER - toSend.remaining() >= packet) {
        taken += wrap(source);
      }
    }
    return taken;
  }

  /** Sends what waits; true when nothing does any more. */
  boolean flush() throws IOException {
    while (toSend.hasRemaining()) {
      if (channel.write(toSend) == 0) {
        return false;
      }
    }
    return true;
  }

  boolean pending() {
    return toSend.hasRemaining();
  }

  @Override
  public boolean isOpen() {
    return channel.isOpen();
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
