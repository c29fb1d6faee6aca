package org.clonos.spark.conduit;

import java.util.List;

/** What {@link ConduitProtocol} asks its runtime to do, in order. */
public sealed interface Action {
  /**
   * Connect after a delay; {@code fresh} until a replica of this task attempt has said WELCOME. {@code server} is 0 or 1:
   * with standbys there are two, and the replica and its standby are never on the same.
   */
  record Connect(Fence fence, boolean fresh, long delayMs, int server) implements Action {}

  /**
   * Send HELLO. {@code failovers} are those of this task attempt to another server. {@code recovered} is the offset up
   * to which a replica of this attempt has recovered the log.
   */
  record Hello(Fence fence, boolean fresh, List<Failover> failovers, long recovered) implements Action {}

  /** Send RESUME. */
  record Resume(long emittedOutput, long logStart, byte[] log) implements Action {}

  /** Take the bundle under construction, serialize it under this number and answer {@link Event.Sealed}. */
  record Seal(long seq) implements Action {}

  /** Move a kept bundle from memory to the spill file. */
  record Spill(long seq) implements Action {}

  /** Send a kept bundle. */
  record Send(long seq) implements Action {}

  /** Send END. */
  record End(long seq) implements Action {}

  /** Send TICK. */
  record Tick() implements Action {}

  /** Hand the blocks of the OUTPUT just seen on to Spark; so many rows are in them. */
  record PassOn(int rows) implements Action {}

  /** Tell the replica up to where the conduit has its log. */
  record LogFlushed(long logEnd) implements Action {}

  /** Drop kept bundles up to this number. */
  record Forget(long seq) implements Action {}

  /** Close the connection. */
  record Close() implements Action {}

  /** The epoch is done: no more rows come. */
  record Finish() implements Action {}

  /** Fail the task. */
  record Fail(String error, String message) implements Action {}

  /** Connect to a standby after a delay; one asked for before is not wanted any more. */
  record ConnectStandby(long delayMs, int server) implements Action {}

  /**
   * Send HELLO to the standby. {@code fresh} while nothing of this task attempt has been forgotten: it starts from the end
   * of the epoch before, or goes on with what it has in memory; else from the newest snapshot inside the epoch. {@code
   * recovered} is the offset up to which its primary has recovered the log.
   */
  record StandbyHello(Fence fence, boolean fresh, List<Failover> failovers, long recovered) implements Action {}

  /** Send RESUME to the standby. */
  record StandbyResume(long emittedOutput, long logStart, byte[] log) implements Action {}

  /** Send a kept bundle to the standby. */
  record SendStandby(long seq) implements Action {}

  /** Tell the standby what the replica's log goes on with. */
  record Follow(long logStart, byte[] log) implements Action {}

  /** Tell the standby that the replica has ended the epoch. */
  record EndStandby(long seq) implements Action {}

  /** Close the connection to the standby, behind what it was sent. */
  record CloseStandby() implements Action {}

  /** The standby is the replica; its connection takes the place of the one that was closed. */
  record Promote(Fence fence, long emittedOutput) implements Action {}
}
