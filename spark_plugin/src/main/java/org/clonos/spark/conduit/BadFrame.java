package org.clonos.spark.conduit;

import java.io.IOException;

/** A frame that nothing may be acted upon: wrong length, type or checksum. It ends the connection. */
final class BadFrame extends IOException {
  private static final long serialVersionUID = 1L;

  BadFrame(String message) {
    super(message);
  }
}
