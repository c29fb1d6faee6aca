package org.clonos.spark.conduit;

/**
 * The numbers a conduit works with. {@code idleBundles} is how many bundles may be under way before rows wait for
 * company: below it a row leaves at once, from there on a bundle leaves when it is full, or {@code flushMs} old, and as
 * much older for every further one under way. {@code attempts} is how many replacements without progress are tried;
 * {@code connectMs} the time from asking for a replica to its WELCOME. {@code standbys} is 0 or 1, and a
 * {@code passive} one is not sent what the replica is sent. {@code settleMs} is how long, after a loss, the replica's
 * own first work goes before another standby, which restores and repeats. {@code firstServer} is where the instance was
 * when it was last seen, {@code fence} the task attempt's first.
 */
public record Limits(
    Fence fence,
    int bundleRows,
    long bundleBytes,
    int idleBundles,
    long flushMs,
    long inflightBytes,
    long tickMs,
    long heartbeatMs,
    long connectMs,
    int attempts,
    int standbys,
    boolean passive,
    long settleMs,
    int firstServer) {}
