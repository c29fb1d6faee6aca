package org.clonos.spark.conduit;

/** The instance went on on another server: under which fence, and how far its log was common to both. */
public record Failover(Fence fence, long logOffset) {}
