package org.clonos.spark.conduit;

/**
 * One connection of a conduit to a process: to the instance's replica, or to its standby. Two marks walk along the
 * numbers of the kept bundles: {@code acked} (the process has them) and {@code sent} (on this connection). The model has
 * the same in {@code clonos/protocol/roles/peer_link.py}.
 */
final class PeerLink {
  private final BundleSizes kept;

  boolean connected;

  /** The process has said that it will be silent for a while. */
  boolean paused;

  long heardAt;
  private long sent;
  private long acked;
  private long underWayBytes;
  private int window = 4;
  private long windowBytes = 1 << 20;

  PeerLink(BundleSizes kept) {
    this.kept = kept;
  }

  long sent() {
    return sent;
  }

  long acked() {
    return acked;
  }

  /** The connection stands. */
  void open(long now) {
    connected = true;
    paused = false;
    heardAt = now;
  }

  /** What it has said of its room. */
  void window(int bundles, long bytes) {
    window = bundles;
    windowBytes = bytes;
  }

  /** The process has what lies up to there, and is sent what follows. */
  void beginAfter(long bundle) {
    sent = bundle;
    acked = bundle;
    underWayBytes = 0;
  }

  /** Whether one more bundle may be sent; one alone may be larger than the window. */
  boolean hasRoomFor(long size) {
    return sent - acked < window && hasRoomAgainFor(size);
  }

  /**
   * Whether one more bundle may be sent that was made for an earlier process. That there be few under way is for those
   * that are still to be made: it makes them larger.
   */
  boolean hasRoomAgainFor(long size) {
    return underWayBytes == 0 || underWayBytes + size <= windowBytes;
  }

  /** The next bundle; its number. */
  long send() {
    sent++;
    underWayBytes += kept.get(sent);
    return sent;
  }

  /** The process has the bundles up to there. One that replaces another may have some that it was never sent. */
  void acknowledge(long upto) {
    if (upto > sent) {
      beginAfter(upto);
    }
    while (acked < upto) {
      acked++;
      underWayBytes -= kept.get(acked);
    }
  }

  /** Whether nothing has been heard for as long as it may be. */
  boolean isSilent(long now, long limit) {
    return silentAt(limit) <= now;
  }

  /** When it will have been silent for that long. */
  long silentAt(long limit) {
    return connected && !paused ? heardAt + limit : Long.MAX_VALUE;
  }
}
