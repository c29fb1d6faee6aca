package org.clonos.spark.conduit;

/** What {@link ConduitProtocol} knows of its second connection: asked for, standing, and its process restored. */
final class Standby {
  boolean wanted;
  boolean connected;
  boolean follows;

  /** A newer snapshot, in place of the one it was at. */
  boolean restoring;

  int failures;
  long sent;
  long taken;
  long underWay;
  int window = 4;
  long windowBytes = 1 << 20;
  long heardAt;

  boolean roomFor(long size) {
    return sent - taken < window && (underWay == 0 || underWay + size <= windowBytes);
  }
}
