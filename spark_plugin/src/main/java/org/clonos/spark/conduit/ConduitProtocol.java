package org.clonos.spark.conduit;

import java.util.ArrayList;
import java.util.List;

/**
 * The conduit's rules (docs/wire.md) as a state machine without IO: events and the time go in, actions come out.
 *
 * <p>Bundles are numbered once per task attempt and kept until a durable snapshot covers them. Three marks walk along
 * the numbers: {@code checkpointed} (a durable snapshot covers them), {@code acked} (this replica has them) and
 * {@code sent} (on this connection). Losing a replica sets the last two back to the first; nothing else changes, so a
 * replacement sees the same bundles under the same numbers. With a standby there is a second connection, which is sent
 * every bundle and every increment of the log, and takes the place of the first when that is lost. The same scripted
 * scenarios run against this class and its model in {@code clonos/protocol/roles/conduit_model.py}.
 *
 * <p>Not thread safe: one thread owns it.
 */
public final class ConduitProtocol {
  /** Where a conduit stands. */
  public enum State { CONNECTING, OPEN, ENDING, ENDED, FAILED }

  private static final long MAX_STANDBY_DELAY_MS = 2000;

  private final Limits limits;
  private final List<Action> actions = new ArrayList<>();
  private final BundleSizes kept = new BundleSizes();
  private final KeptLog log = new KeptLog();

  private State state = State.CONNECTING;
  private PeerLink replica = new PeerLink(kept);
  private boolean fresh = true;
  private Fence fence;
  private int connectFailures;
  private long connectingSince;

  private long checkpointed;
  private long emittedOutput;

  private int pendingRows;
  private long pendingBytes;
  private long pendingSince;
  private boolean sealing;
  private boolean exhausted;

  private long unspilledFrom = 1;
  private long memoryBytes;

  private long tickedAt;

  private int losses;
  private long ackedMark;
  private long emittedMark;
  private boolean progressSinceLoss;
  private long doubtful;
  private String lastLoss = "";

  private int server;
  private int home = -1;
  private final List<Failover> failovers = new ArrayList<>();
  private long recovered;
  private Standby standby = newStandby();
  private boolean snapshotted;
  private long forgotten;

  public ConduitProtocol(Limits limits) {
    this.limits = limits;
    this.fence = limits.fence();
    this.server = limits.firstServer();
  }

  /** The server of the replica, or of the one that is asked for. */
  int server() {
    return server;
  }

  public State state() {
    return state;
  }

  /** Takes one event at a time (milliseconds on any steady clock) and says what is to be done. */
  public List<Action> handle(Event event, long now) {
    if (state == State.ENDED || state == State.FAILED) {
      return List.of();
    }
    actions.clear();
    dispatch(event, now);
    return List.copyOf(actions);
  }

  private void dispatch(Event event, long now) {
    if (event instanceof Event.Rows rows) {
      rows(rows, now);
    } else if (event instanceof Event.Sealed sealedBundle) {
      sealed(sealedBundle, now);
    } else if (event instanceof Event.Exhausted) {
      exhausted = true;
      pump(now);
    } else if (event instanceof Event.Time) {
      time(now);
    } else if (event instanceof Event.Start) {
      connectingSince = now;
      actions.add(new Action.Connect(fence, true, 0, server));
    } else if (event instanceof Event.ConnectFailed failed) {
      connectFailed(failed, now);
    } else if (event instanceof Event.Connected) {
      connected(now);
    } else if (event instanceof Event.Stop) {
      close();
      closeStandby();
      state = State.FAILED;
    } else if (event instanceof Event.StandbyConnected) {
      standbyConnected(now);
    } else if (event instanceof Event.StandbyLost) {
      standbyLost();
    } else if (event instanceof Event.StandbyWelcome
        || event instanceof Event.StandbyAcked
        || event instanceof Event.StandbyHeard) {
      if (standby.link.connected) {
        standby.link.heardAt = now;
        standbyEvent(event);
      }
    } else if (replica.connected) {
      replica.heardAt = now;
      connectionEvent(event, now);
    }
  }

  private void connectionEvent(Event event, long now) {
    if (event instanceof Event.Output output) {
      output(output, now);
    } else if (event instanceof Event.Watermarks) {
      actions.add(new Action.PassOn(0));
    } else if (event instanceof Event.FlushLog increment) {
      flushLog(increment);
    } else if (event instanceof Event.Checkpointed mark) {
      checkpointed(mark, now);
    } else if (event instanceof Event.PassedOver) {
      progressSinceLoss = true;
      doubtful = replica.acked() + 1;
    } else if (event instanceof Event.Welcome welcome) {
      welcome(welcome, now);
    } else if (event instanceof Event.Ended ended) {
      ended(ended);
    } else if (event instanceof Event.ReplicaError error) {
      replicaError(error, now);
    } else if (event instanceof Event.Lost lost) {
      lost(lost.reason(), now);
    } else if (event instanceof Event.Paused) {
      replica.paused = true;
    } else if (event instanceof Event.Resumed) {
      replica.paused = false;
    }
  }

  /** When the next {@link Event.Time} can matter, for a runtime that sleeps. */
  public long nextTime() {
    long next = replica.connected ? tickedAt + limits.tickMs() : Long.MAX_VALUE;
    if (state == State.CONNECTING) {
      next = Math.min(next, connectingSince + limits.connectMs());
    }
    next = Math.min(next, replica.silentAt(limits.heartbeatMs()));
    next = Math.min(next, standby.link.silentAt(limits.heartbeatMs()));
    if (state == State.OPEN && pendingBytes > 0 && replica.sent() == kept.last() && replica.hasRoomFor(pendingBytes)) {
      next = Math.min(next, pendingSince + patience());
    }
    return next;
  }

  private void connected(long now) {
    replica.open(now);
    connectFailures = 0;
    tickedAt = now;
    actions.add(new Action.Hello(fence, fresh, List.copyOf(failovers), recovered));
    actions.add(new Action.Resume(emittedOutput, log.start(), log.bytes()));
  }

  private void connectFailed(Event.ConnectFailed failed, long now) {
    lastLoss = failed.reason();
    if (now - connectingSince >= limits.connectMs()) {
      connectDeadline();
      return;
    }
    long delay = Math.min(500, 50L << Math.min(connectFailures, 4));
    connectFailures++;
    turnToOtherServer();
    actions.add(new Action.Connect(fence, fresh, delay, server));
  }

  /** The one that was asked cannot be reached, or does not answer: a stopped server's socket still accepts. */
  private void turnToOtherServer() {
    if (limits.standbys() > 0) {
      server = 1 - server;
    }
  }

  private void welcome(Event.Welcome welcome, long now) {
    if (state != State.CONNECTING) {
      protocolError("WELCOME on a connection that is already open");
      return;
    }
    if (welcome.window() < 1 || welcome.windowBytes() < 1) {
      protocolError("WELCOME with window " + welcome.window() + " and window_bytes " + welcome.windowBytes());
      return;
    }
    replica.window(welcome.window(), welcome.windowBytes());
    recovered = welcome.logEnd();
    fresh = false;
    recordFailover(server);
    state = State.OPEN;
    wantStandby(fence.equals(limits.fence()) ? 0 : limits.settleMs());
    pump(now);
  }

  private void rows(Event.Rows rows, long now) {
    if (pendingBytes == 0 && rows.bytes() > 0) {
      pendingSince = now;
    }
    pendingRows = rows.rows();
    pendingBytes = rows.bytes();
    pump(now);
  }

  private void sealed(Event.Sealed bundle, long now) {
    kept.add(bundle.bytes());
    memoryBytes += bundle.bytes();
    sealing = false;
    pendingRows = 0;
    pendingBytes = 0;
    if (memoryBytes > limits.inflightBytes() && forgotten < checkpointed) {
      closeStandby();
      wantStandby(0);
      forget();
    }
    spill();
    pump(now);
  }

  /** Oldest first: what is spilled last is most likely still to be sent, or soon to be forgotten. */
  private void spill() {
    while (memoryBytes > limits.inflightBytes() && unspilledFrom <= kept.last()) {
      actions.add(new Action.Spill(unspilledFrom));
      memoryBytes -= kept.get(unspilledFrom);
      unspilledFrom++;
    }
  }

  /** Sends what the window allows: kept bundles first, then the one under construction, then END. */
  private void pump(long now) {
    if (state != State.OPEN) {
      return;
    }
    while (replica.sent() < kept.last()) {
      if (!replica.hasRoomAgainFor(kept.get(replica.sent() + 1))) {
        pumpStandby();
        return;
      }
      actions.add(new Action.Send(replica.send()));
    }
    pumpStandby();
    if (sealing) {
      return;
    }
    if (pendingBytes > 0) { // also of blocks that have watermarks and no rows
      if (due(now) && replica.hasRoomFor(pendingBytes)) {
        sealing = true;
        actions.add(new Action.Seal(kept.last() + 1));
      }
    } else if (exhausted) {
      actions.add(new Action.End(kept.last()));
      state = State.ENDING;
    }
  }

  /** Bundles that the replica was sent and has not acknowledged yet. */
  private long underWay() {
    return replica.sent() - replica.acked();
  }

  private boolean due(long now) {
    return underWay() < limits.idleBundles()
        || pendingRows >= limits.bundleRows()
        || pendingBytes >= limits.bundleBytes()
        || exhausted
        || now >= pendingSince + patience();
  }

  /**
   * How long blocks wait for company: the longer the further the replica is behind. One more small bundle would only
   * wait there, and cost it a wake-up and a log entry; so load makes bundles larger, not more.
   */
  private long patience() {
    return limits.flushMs() * (underWay() - limits.idleBundles() + 1);
  }

  private void output(Event.Output output, long now) {
    if (output.ackedInput() > kept.last()) {
      protocolError("OUTPUT acknowledges bundle " + output.ackedInput() + ", the last one is " + kept.last());
    } else if (output.log().length > 0 && log.leavesHole(output.logStart())) {
      protocolError("OUTPUT leaves a hole in the causal log before offset " + output.logStart());
    } else if (output.rows() > 0 && output.first() <= emittedOutput) {
      protocolError("OUTPUT begins at " + output.first() + ", output up to " + emittedOutput + " is emitted already");
    } else if (output.rows() > 0 && output.last() > output.emittedOutput()) {
      protocolError("OUTPUT ends at " + output.last() + " but says it emitted " + output.emittedOutput());
    } else {
      learn(output.logStart(), output.log());
      emittedOutput = Math.max(emittedOutput, output.emittedOutput());
      if (output.rows() > 0) {
        actions.add(new Action.PassOn(output.rows()));
      }
      replica.acknowledge(output.ackedInput());
      forget();
      pump(now);
    }
  }

  /** The standby is shown it before the replica hears that it may go on, and acts. */
  private void flushLog(Event.FlushLog increment) {
    if (log.leavesHole(increment.logStart())) {
      protocolError("FLUSH_LOG leaves a hole in the causal log before offset " + increment.logStart());
      return;
    }
    learn(increment.logStart(), increment.log());
    actions.add(new Action.LogFlushed(log.end()));
  }

  private void checkpointed(Event.Checkpointed mark, long now) {
    if (mark.seq() > kept.last()) {
      protocolError("CHECKPOINTED for bundle " + mark.seq() + ", the last one is " + kept.last());
      return;
    }
    log.forgetBefore(mark.logOffset());
    snapshotted = true;
    progressSinceLoss = true;
    if (mark.seq() > checkpointed) {
      replica.acknowledge(mark.seq());
      checkpointed = mark.seq();
      forget();
      advanceStandby();
    }
    pump(now);
  }

  /** What neither a replacement, nor the standby, nor a standby that was behind when promoted needs any more. */
  private void forget() {
    long upto = Math.min(checkpointed, replica.acked());
    if (standby.link.connected) {
      upto = Math.min(upto, standby.link.acked());
    }
    if (upto <= forgotten) {
      return;
    }
    for (; unspilledFrom <= upto; unspilledFrom++) {
      memoryBytes -= kept.get(unspilledFrom);
    }
    kept.forget(upto);
    forgotten = upto;
    actions.add(new Action.Forget(upto));
  }

  private void learn(long start, byte[] increment) {
    byte[] fresh = log.append(start, increment);
    if (fresh.length > 0 && standby.link.connected) {
      actions.add(new Action.Follow(log.end() - fresh.length, fresh));
    }
  }

  private void ended(Event.Ended ended) {
    if (state != State.ENDING) {
      protocolError("ENDED before END was sent");
    } else if (ended.emittedOutput() < emittedOutput) {
      protocolError(
          "ENDED at output " + ended.emittedOutput() + ", output up to " + emittedOutput + " is emitted already");
    } else {
      close();
      if (standby.link.connected) {
        actions.add(new Action.EndStandby(kept.last()));
      }
      closeStandby();
      state = State.ENDED;
      actions.add(new Action.Finish());
    }
  }

  private void replicaError(Event.ReplicaError error, long now) {
    String text = error.traceback().isEmpty() ? error.message() : error.message() + "\n" + error.traceback();
    if (error.retryable()) {
      lost(error.error() + ": " + text, now);
    } else {
      fail(error.error(), text);
    }
  }

  private void lost(String reason, long now) {
    close();
    boolean progress = progressSinceLoss || replica.acked() > ackedMark || emittedOutput > emittedMark;
    losses = progress ? 1 : losses + 1;
    ackedMark = Math.max(ackedMark, replica.acked());
    emittedMark = Math.max(emittedMark, emittedOutput);
    progressSinceLoss = false;
    lastLoss = reason;
    long firstNotAcked = replica.acked() + 1;
    replica.beginAfter(checkpointed);
    connectingSince = now;
    state = State.CONNECTING;
    String why = null;
    if (losses > limits.attempts()) {
      why = "the replica was lost " + losses + " times without progress";
    } else if (fence.isLast()) {
      why = "the replica was replaced as often as one task attempt can count";
    }
    if (why != null) {
      fail("ReplicaLost", why + "; the first bundle not acknowledged is " + firstNotAcked + "; last reason: " + reason);
      return;
    }
    fence = fence.next();
    if (standbyTakesOver(firstNotAcked)) {
      promote();
      return;
    }
    closeStandby();
    long delay = losses == 1 ? 0 : Math.min(2000, 100L << Math.min(losses - 2, 5));
    actions.add(new Action.Connect(fence, fresh, delay, server));
  }

  /**
   * Unless the replica was lost where the one before was, or in a bundle in which a record was passed over: then a record
   * may be the cause. A standby knows nothing of it, and would die in its turn; the server where the last one died knows
   * how, and its next one is careful.
   */
  private boolean standbyTakesOver(long firstNotAcked) {
    return standby.follows && losses == 1 && firstNotAcked > doubtful;
  }

  private void wantStandby(long delay) {
    if (limits.standbys() > 0 && !standby.wanted) {
      standby.wanted = true;
      actions.add(new Action.ConnectStandby(delay, 1 - server));
    }
  }

  private void standbyConnected(long now) {
    if (!standby.wanted || (state != State.OPEN && state != State.ENDING)) {
      actions.add(new Action.CloseStandby());
      standby.wanted = false;
      return;
    }
    int failures = standby.failures;
    standby = newStandby();
    standby.wanted = true;
    standby.failures = failures;
    standby.link.open(now);
    beginStandby();
    pumpStandby();
  }

  /** It restores the newest snapshot, and hears what is known beyond. */
  private void beginStandby() {
    standby.link.beginAfter(checkpointed);
    actions.add(new Action.StandbyHello(fence, !snapshotted, List.copyOf(failovers), recovered));
    actions.add(new Action.StandbyResume(emittedOutput, log.start(), log.bytes()));
  }

  /** A passive standby goes from snapshot to snapshot, one after the other. */
  private void advanceStandby() {
    if (limits.passive() && standby.follows && !standby.restoring && standby.link.acked() < checkpointed) {
      standby.restoring = true;
      beginStandby();
    }
  }

  private void standbyEvent(Event event) {
    if (event instanceof Event.StandbyWelcome welcome) {
      standby.link.window(Math.max(welcome.window(), 1), Math.max(welcome.windowBytes(), 1));
      standby.follows = true;
      standby.failures = 0;
    } else if (event instanceof Event.StandbyAcked mark) {
      standby.restoring = false;
      standby.link.acknowledge(Math.min(mark.ackedInput(), standby.link.sent()));
    }
    advanceStandby();
    pumpStandby();
  }

  /** Everything that the replica was sent, as the standby's own window allows; some of it while it restores. */
  private void pumpStandby() {
    PeerLink link = standby.link;
    if (!link.connected) {
      return;
    }
    while (link.sent() < replica.sent() && !limits.passive() && link.hasRoomFor(kept.get(link.sent() + 1))) {
      actions.add(new Action.SendStandby(link.send()));
    }
    forget();
  }

  private void standbyLost() {
    if (!standby.wanted) {
      return;
    }
    int failures = standby.failures + 1;
    closeStandby();
    standby.failures = failures;
    forget();
    if (state == State.OPEN) {
      wantStandby(Math.min(MAX_STANDBY_DELAY_MS, 50L << Math.min(failures - 1, 6)));
    }
  }

  private void closeStandby() {
    if (standby.link.connected) {
      actions.add(new Action.CloseStandby());
    }
    standby = newStandby();
  }

  private Standby newStandby() {
    return new Standby(new PeerLink(kept));
  }

  private void recordFailover(int where) {
    if (home >= 0 && home != where) {
      failovers.add(new Failover(fence, Math.max(log.end(), recovered)));
    }
    home = where;
  }

  /** Its connection is the replica's now, and what it was sent it need not be sent again. */
  private void promote() {
    replica = standby.link;
    standby = newStandby();
    server = 1 - server;
    recordFailover(server);
    // Its snapshots take the place of the lost replica's, and may reach less far: what they need is kept.
    checkpointed = Math.min(checkpointed, replica.acked());
    actions.add(new Action.Promote(fence, emittedOutput));
  }

  private void time(long now) {
    if (state == State.CONNECTING && now - connectingSince >= limits.connectMs()) {
      connectDeadline();
    } else if (replica.isSilent(now, limits.heartbeatMs())) {
      if (state == State.CONNECTING) {
        turnToOtherServer();
      }
      lost("nothing was heard from the replica for " + (now - replica.heardAt) + " ms", now);
    } else {
      if (standby.link.isSilent(now, limits.heartbeatMs())) {
        standbyLost();
      }
      if (replica.connected && now - tickedAt >= limits.tickMs()) {
        tickedAt = now;
        actions.add(new Action.Tick());
      }
      pump(now);
    }
  }

  private void connectDeadline() {
    fail(
        "ReplicaLost",
        "no replica was ready within " + limits.connectMs() + " ms; the first bundle not acknowledged is "
            + (replica.acked() + 1) + "; last reason: " + (lastLoss.isEmpty() ? "no answer" : lastLoss));
  }

  private void protocolError(String message) {
    fail("ProtocolError", message);
  }

  private void fail(String error, String message) {
    close();
    closeStandby();
    state = State.FAILED;
    actions.add(new Action.Fail(error, message));
  }

  private void close() {
    if (replica.connected) {
      replica.connected = false;
      actions.add(new Action.Close());
    }
  }
}
