package org.clonos.spark.conduit;

/** What {@link ConduitProtocol} knows of its standby: asked for, and its process restored. */
final class Standby {
  final PeerLink link;
  boolean wanted;
  boolean follows;

  /** A newer snapshot, in place of the one it was at. */
  boolean restoring;

  /** In a row, to have one. */
  int failures;

  Standby(PeerLink link) {
    this.link = link;
  }
}
