package org.clonos.spark.conduit;

/** Sizes of the kept bundles, addressed by their consecutive numbers. A ring that grows. */
final class BundleSizes {
  private long[] ring = new long[64];
  private long forgotten;
  private long last;

  long last() {
    return last;
  }

  void add(long size) {
    if (last - forgotten == ring.length) {
      long[] larger = new long[ring.length * 2];
      for (long seq = forgotten + 1; seq <= last; seq++) {
        larger[slot(seq, larger)] = ring[slot(seq, ring)];
      }
      ring = larger;
    }
    last++;
    ring[slot(last, ring)] = size;
  }

  long get(long seq) {
    return ring[slot(seq, ring)];
  }

  void forget(long upto) {
    forgotten = upto;
  }

  private static int slot(long seq, long[] ring) {
    return (int) (seq & (ring.length - 1));
  }
}
