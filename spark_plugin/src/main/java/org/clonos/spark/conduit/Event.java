package org.clonos.spark.conduit;

/**
 * What can happen to a conduit, as {@link ConduitProtocol} sees it: frames of the replica, the task's input, the
 * connection, the clock and the task's end. Nothing here knows sockets or threads.
 */
public sealed interface Event {
  /** The task attempt begins. */
  record Start() implements Event {}

  /** The connection asked for stands. */
  record Connected() implements Event {}

  /** The connection asked for could not be made. */
  record ConnectFailed(String reason) implements Event {}

  /** WELCOME: the replica takes at most this much beyond what it has taken in, and has recovered its log up to there. */
  record Welcome(int window, long windowBytes, long logEnd) implements Event {}

  /** The bundle under construction now holds this much; blocks of watermarks have bytes and no rows. */
  record Rows(int rows, long bytes) implements Event {}

  /** The bundle under construction was taken and serialized, as {@link Action.Seal} asked. */
  record Sealed(long seq, int rows, long bytes) implements Event {}

  /** The input of this epoch is exhausted; the last {@link Rows} said what still waits. */
  record Exhausted() implements Event {}

  /** OUTPUT; {@code first} and {@code last} are the positions of its first and last row, 0 without rows. */
  record Output(long ackedInput, long emittedOutput, long logStart, byte[] log, int rows, long first, long last)
      implements Event {}

  /** The OUTPUT just taken has no rows, but blocks with watermarks. */
  record Watermarks() implements Event {}

  /** FLUSH_LOG: what an effect depends on, ahead of its rows. The replica waits until the conduit says that it has it. */
  record FlushLog(long logStart, byte[] log) implements Event {}

  /** CHECKPOINTED. */
  record Checkpointed(long seq, long logOffset) implements Event {}

  /** ENDED. */
  record Ended(long emittedOutput) implements Event {}

  /** HEARTBEAT. */
  record Heartbeat(long progress) implements Event {}

  /** PASSED_OVER: a record that ended processes is, for the first time on this host. */
  record PassedOver() implements Event {}

  /** ERROR. */
  record ReplicaError(String error, String message, boolean retryable, String traceback) implements Event {}

  /** Bytes arrived, perhaps not yet a whole frame. */
  record Heard() implements Event {}

  /** The stream broke, or a frame was damaged. */
  record Lost(String reason) implements Event {}

  /** Reading stopped because Spark has not taken what was read; silence means nothing meanwhile. */
  record Paused() implements Event {}

  /** Reading goes on. */
  record Resumed() implements Event {}

  /** Time went by. */
  record Time() implements Event {}

  /** The task completed or was interrupted. */
  record Stop() implements Event {}

  /** The connection to a standby stands. */
  record StandbyConnected() implements Event {}

  /** The standby is restored and follows. */
  record StandbyWelcome(int window, long windowBytes) implements Event {}

  /** The standby has acknowledged bundles up to this number. */
  record StandbyAcked(long ackedInput) implements Event {}

  /** Bytes arrived from the standby. */
  record StandbyHeard() implements Event {}

  /** There is no connection to a standby, or none any more. */
  record StandbyLost(String reason) implements Event {}
}
