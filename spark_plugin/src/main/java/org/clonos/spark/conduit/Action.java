package org.clonos.spark.conduit;

/** What {@link ConduitProtocol} asks its runtime to do, in order. */
public sealed interface Action {
  /** Connect after a delay; {@code fresh} on the first connection of a task attempt. */
  record Connect(long fence, boolean fresh, long delayMs) implements Action {}

  /** Send HELLO. */
  record Hello(long fence, boolean fresh) implements Action {}

  /** Send RESUME. */
  record Resume(long passed, long logStart, byte[] log) implements Action {}

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

  /** Hand the rows of the OUTPUT just seen on to Spark. */
  record PassOn(int rows) implements Action {}

  /** Drop kept bundles up to this number. */
  record Forget(long seq) implements Action {}

  /** Close the connection. */
  record Close() implements Action {}

  /** The epoch is done: no more rows come. */
  record Finish() implements Action {}

  /** Fail the task. */
  record Fail(String error, String message) implements Action {}
}
