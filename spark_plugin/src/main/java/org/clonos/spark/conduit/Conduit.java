package org.clonos.spark.conduit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Selector;
import java.nio.channels.UnresolvedAddressException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.spark.util.CollectionAccumulator;
import org.clonos.spark.progress.InstanceReport;
import org.clonos.spark.task.CausalStageException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Drives {@link ConduitProtocol}: one thread that owns the connection, the in-flight log and the protocol, sleeping in
 * a selector. It meets the puller in the {@link BundleBuilder} and Spark's task thread in the {@link OutputQueue}.
 *
 * <p>Silence of the replica is judged only after a look at the socket found nothing to read, so a pause of this
 * process is never taken for one of the replica.
 */
final class Conduit implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(Conduit.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int READS_PER_TURN = 16;
  private static final long NEVER = Long.MAX_VALUE;
  private static final long REPORT_MS = 1_000;
  private static final long LINGER_MS = 100;
  private static final int REPORT_CHARACTERS = 32 << 10;

  private final StageSpec spec;
  private final TaskIdentity identity;
  private final List<ServerAddress> servers;
  private final Selector selector;
  private final OutputQueue output;
  private final CollectionAccumulator<String> reports;
  private final ConduitMetrics.Of metrics;
  private final InflightLog inflight;
  private final ConduitProtocol protocol;
  private BundleBuilder builder;
  private Link link;
  private Link standby;

  private volatile boolean stopping;
  private int rowsSeen;
  private long bytesSeen;
  private boolean exhaustedSeen;
  private boolean done;
  private long connectAt = NEVER;
  private int connectServer;
  private long standbyAt = NEVER;
  private int standbyServer;
  private long lostAt;
  private String lostBecause;
  private boolean isPromoting;
  private int replaced;
  private int promoted;
  private boolean ended;
  private JsonNode work;

  Conduit(
      StageSpec spec,
      TaskIdentity identity,
      Selector selector,
      OutputQueue output,
      CollectionAccumulator<String> reports) {
    this.reports = reports;
    this.spec = spec;
    this.identity = identity;
    this.servers = spec.serversOf(identity.instance());
    this.selector = selector;
    this.link = new Link(selector, spec.tls());
    this.standby = new Link(selector, spec.tls());
    this.output = output;
    this.metrics = ConduitMetrics.operator(spec.name());
    this.inflight =
        new InflightLog(
            spec.spillPath(),
            identity.node() + "-" + identity.instance() + "-" + identity.epoch() + "-" + identity.taskAttemptId(),
            metrics);
    this.protocol =
        new ConduitProtocol(spec.limits(servers.size() - 1, identity.taskAttemptId(), Homes.of(spec, identity)));
  }

  void attach(BundleBuilder bundles) {
    builder = bundles;
  }

  /** Ends the loop from outside. */
  void stop() {
    stopping = true;
    selector.wakeup();
  }

  @Override
  public void run() {
    try {
      happen(new Event.Start());
      while (!done) {
        turn();
      }
    } catch (CausalStageException e) {
      failed(e);
    } catch (Throwable e) {
      output.finish(e);
    } finally {
      free();
    }
  }

  private void free() {
    waiting(0, 0);
    reports.add(report());
    try {
      link.disconnect();
      standby.disconnect();
      selector.close();
      inflight.close();
    } catch (IOException e) {
      LOG.warn("{}: could not clean up: {}", identity, e.toString());
    }
  }

  private String report() {
    return new InstanceReport(
            identity.epoch(),
            identity.node(),
            identity.instance(),
            identity.taskAttemptId(),
            ended,
            work,
            builder.received(),
            replaced,
            promoted)
        .encode();
  }

  private void turn() throws Throwable {
    if (stopping) {
      happen(new Event.Stop());
      done = true;
      return;
    }
    takeInput();
    throttle();
    if (done) {
      return;
    }
    flush(link);
    flush(standby);
    long own = Math.min(Math.min(connectAt, link.dueAt()), Math.min(standbyAt, standby.dueAt()));
    await(Math.min(own, protocol.nextTime()) - now());
    if (link.connecting()) {
      finishConnect();
    } else if (connectAt <= now()) {
      connect();
    }
    if (standby.connecting() || standbyAt <= now()) {
      connectStandby();
    }
    if (link.open()) {
      read();
    }
    if (standby.open()) {
      readStandby();
    }
    happen(new Event.Time());
  }

  private static void flush(Link link) {
    if (link.open()) {
      link.flush();
    }
  }

  /** Sleeps until something can be done, or another thread wakes the selector, or the wait is over. */
  private void await(long waitMs) throws IOException {
    selector.selectedKeys().clear();
    if (waitMs <= 0) {
      selector.selectNow();
    } else {
      selector.select(waitMs);
    }
  }

  private void takeInput() throws Throwable {
    BundleBuilder.Fill fill = builder.fill();
    if (fill.failure() != null) {
      throw fill.failure();
    }
    if (fill.rows() != rowsSeen || fill.bytes() != bytesSeen) {
      waiting(fill.rows(), fill.bytes());
      happen(new Event.Rows(fill.rows(), fill.bytes()));
    }
    if (fill.exhausted() && !exhaustedSeen) {
      exhaustedSeen = true;
      happen(new Event.Exhausted());
    }
  }

  /** So much is in the bundle under construction. */
  private void waiting(int rows, long bytes) {
    metrics.waitingRecords().inc(rows - rowsSeen);
    rowsSeen = rows;
    bytesSeen = bytes;
  }

  private void throttle() throws IOException {
    if (link.open() && link.reading() == output.full()) {
      boolean wanted = !link.reading();
      link.reading(wanted);
      happen(wanted ? new Event.Resumed() : new Event.Paused());
    }
  }

  private void connect() throws IOException {
    connectAt = NEVER;
    try {
      if (link.connect(servers.get(connectServer).fromHere())) {
        happen(new Event.Connected());
      }
    } catch (IOException | RuntimeException e) {
      connectFailed(e);
    }
  }

  private void connectStandby() throws IOException {
    standbyAt = NEVER;
    try {
      String address = servers.get(standbyServer).fromHere();
      if (standby.connecting() ? standby.finishConnect() : standby.connect(address)) {
        happen(new Event.StandbyConnected());
      }
    } catch (IOException | UnresolvedAddressException e) {
      standby.disconnect();
      happen(new Event.StandbyLost("cannot connect to " + servers.get(standbyServer).fromHere() + ": " + e));
    }
  }

  private void finishConnect() throws IOException {
    try {
      if (link.finishConnect()) {
        happen(new Event.Connected());
      }
    } catch (IOException e) {
      connectFailed(e);
    }
  }

  private void connectFailed(Exception e) throws IOException {
    link.disconnect();
    happen(new Event.ConnectFailed("cannot connect to " + servers.get(connectServer).fromHere() + ": " + e));
  }

  /** A standby says little: that it is there, how far it has come, or why it goes. */
  private void readStandby() throws IOException {
    Link from = standby;
    try {
      int count = from.fill();
      if (count < 0) {
        happen(new Event.StandbyLost("the standby closed the connection"));
        return;
      }
      if (count > 0) {
        happen(new Event.StandbyHeard());
      }
      FrameReader.Frame frame;
      while (standby == from && from.open() && (frame = from.next()) != null) {
        standbyFrame(frame);
      }
    } catch (IOException e) {
      happen(new Event.StandbyLost(e.toString()));
    }
  }

  private void standbyFrame(FrameReader.Frame frame) throws IOException {
    ByteBuffer in = frame.payload();
    try {
      switch (frame.type()) {
        case Frames.WELCOME -> {
          JsonNode body = JSON.readTree(in.array());
          happen(new Event.StandbyWelcome(body.path("window").asInt(), body.path("window_bytes").asLong()));
        }
        case Frames.OUTPUT -> happen(new Event.StandbyAcked(in.getLong()));
        case Frames.HEARTBEAT -> {}
        case Frames.ERROR -> {
          String reason = JSON.readTree(in.array()).path("message").asText();
          LOG.warn("{}: its standby is lost: {}", identity, reason);
          happen(new Event.StandbyLost(reason));
        }
        default -> throw new BadFrame("a frame of type " + frame.type() + " of a standby");
      }
    } catch (java.nio.BufferUnderflowException e) {
      throw new BadFrame("a frame of type " + frame.type() + " that is too short");
    }
  }

  /** Handles what has arrived. */
  private void read() throws IOException {
    if (!link.reading()) {
      return;
    }
    try {
      for (int i = 0; i < READS_PER_TURN && link.open() && !output.full(); i++) {
        int count = link.fill();
        if (count == 0) {
          return;
        }
        if (count < 0) {
          happen(new Event.Lost("the replica closed the connection"));
          return;
        }
        happen(new Event.Heard());
        FrameReader.Frame frame;
        while (link.open() && (frame = link.next()) != null) {
          frame(frame);
        }
      }
    } catch (IOException e) {
      happen(new Event.Lost(e.toString()));
    }
  }

  private void frame(FrameReader.Frame frame) throws IOException {
    ByteBuffer in = frame.payload();
    try {
      switch (frame.type()) {
        case Frames.OUTPUT -> output(in);
        case Frames.FLUSH_LOG -> flushLog(in);
        case Frames.CHECKPOINTED -> happen(new Event.Checkpointed(in.getLong(), in.getLong()));
        case Frames.HEARTBEAT -> happen(new Event.Heartbeat(in.getLong()));
        case Frames.PASSED_OVER -> happen(new Event.PassedOver());
        case Frames.WELCOME -> welcome(JSON.readTree(in.array()));
        case Frames.ENDED -> ended(in);
        case Frames.ERROR -> error(JSON.readTree(in.array()));
        default -> throw new BadFrame("a frame of type " + frame.type());
      }
    } catch (java.nio.BufferUnderflowException e) {
      throw new BadFrame("a frame of type " + frame.type() + " that is too short");
    }
  }

  private void welcome(JsonNode body) throws IOException {
    if (body.path("version").asInt() != Frames.VERSION) {
      throw new BadFrame("a WELCOME of version " + body.path("version"));
    }
    happen(
        new Event.Welcome(
            body.path("window").asInt(), body.path("window_bytes").asLong(), body.path("log_end").asLong()));
    if (lostBecause != null && protocol.state() != ConduitProtocol.State.FAILED) {
      long ms = now() - lostAt;
      metrics.replaced(ms);
      promoted += isPromoting ? 1 : 0;
      replaced += isPromoting ? 0 : 1;
      isPromoting = false;
      LOG.warn("{}: replaced the replica in {} ms; it was lost because {}", identity, ms, lostBecause);
      lostBecause = null;
    }
  }

  private void ended(ByteBuffer in) throws IOException {
    long emittedOutput = in.getLong();
    byte[] told = new byte[in.remaining()];
    in.get(told);
    happen(new Event.Ended(emittedOutput));
    ended = protocol.state() == ConduitProtocol.State.ENDED;
    work = told.length > 0 ? JSON.readTree(told) : null;
  }

  private void error(JsonNode body) throws IOException {
    happen(
        new Event.ReplicaError(
            body.path("error").asText("ClonosError"),
            body.path("message").asText(),
            body.path("retryable").asBoolean(),
            body.path("traceback").asText("")));
  }

  private void output(ByteBuffer in) throws IOException {
    long ackedInput = in.getLong();
    long emittedOutput = in.getLong();
    long logStart = in.getLong();
    int logLength = in.getInt();
    int rows = in.getInt();
    int blocks = in.getInt();
    if (logLength < 0 || logLength > in.remaining() || rows < 0) {
      throw new BadFrame("an OUTPUT of " + logLength + " log bytes and " + rows + " rows");
    }
    byte[] log = new byte[logLength];
    in.get(log);
    OutputBlocks batch = OutputBlocks.read(in, rows, blocks, spec.route());
    happen(
        new Event.Output(ackedInput, emittedOutput, logStart, log, rows, batch.first(), batch.last()), batch);
    if (rows == 0 && blocks > 0) {
      happen(new Event.Watermarks(), batch);
    }
  }

  private void flushLog(ByteBuffer in) throws IOException {
    long logStart = in.getLong();
    byte[] log = new byte[in.remaining()];
    in.get(log);
    happen(new Event.FlushLog(logStart, log));
  }

  private void happen(Event event) throws IOException {
    happen(event, null);
  }

  /** Lets an event happen and does what follows, with the blocks that came with it. */
  private void happen(Event event, OutputBlocks batch) throws IOException {
    if (event instanceof Event.Lost lost) {
      lost(lost.reason());
    } else if (event instanceof Event.ReplicaError error) {
      lost(error.error() + ": " + error.message());
    }
    for (Action action : protocol.handle(event, now())) {
      if (action instanceof Action.PassOn) {
        output.put(batch);
        metrics.outputRecords().inc(batch.rows());
      } else if (action instanceof Action.Fail failure) {
        fail(failure, event);
      } else {
        perform(action);
      }
    }
  }

  private void lost(String reason) {
    if (lostBecause == null) {
      lostAt = now();
    }
    lostBecause = reason;
  }

  private void perform(Action action) throws IOException {
    if (action instanceof Action.Send send) {
      link.send(inflight.frame(send.seq()));
    } else if (action instanceof Action.Seal seal) {
      seal(seal.seq());
    } else if (action instanceof Action.Tick) {
      if (!link.backlog()) {
        link.send(Frames.frame(Frames.TICK, new byte[0]));
      }
    } else if (action instanceof Action.LogFlushed flushed) {
      link.send(Frames.frame(Frames.LOG_FLUSHED, flushed.logEnd()));
    } else if (action instanceof Action.Forget forget) {
      inflight.forget(forget.seq());
    } else if (action instanceof Action.Spill spill) {
      spill(spill.seq());
    } else if (action instanceof Action.Connect connect) {
      isPromoting = false; // a standby that was to take over may have been lost, too
      connectAt = now() + connect.delayMs();
      connectServer = connect.server();
      if (lostBecause == null && !connect.fresh()) {
        lost("it was silent");
      }
    } else if (action instanceof Action.Hello hello) {
      ObjectNode body = hello(hello.fence(), hello.fresh(), hello.failovers());
      body.put("recovered", hello.recovered());
      link.send(Frames.frame(Frames.HELLO, JSON.writeValueAsBytes(body)));
    } else if (action instanceof Action.Resume resume) {
      link.send(resume(resume.emittedOutput(), resume.logStart(), resume.log()));
    } else if (action instanceof Action.ConnectStandby connect) {
      standby.disconnect();
      standbyAt = now() + connect.delayMs();
      standbyServer = connect.server();
    } else if (action instanceof Action.StandbyHello hello) {
      ObjectNode body = hello(hello.fence(), hello.fresh(), hello.failovers());
      body.put("standby", true);
      body.put("recovered", hello.recovered());
      standby.send(Frames.frame(Frames.HELLO, JSON.writeValueAsBytes(body)));
    } else if (action instanceof Action.StandbyResume resume) {
      standby.send(resume(resume.emittedOutput(), resume.logStart(), resume.log()));
    } else if (action instanceof Action.SendStandby send) {
      standby.send(inflight.frame(send.seq()));
    } else if (action instanceof Action.Follow follow) {
      FrameBuffer frame = new FrameBuffer(64 + follow.log().length);
      frame.putLong(follow.logStart());
      frame.put(follow.log());
      standby.send(frame.frame(Frames.FOLLOW));
    } else if (action instanceof Action.EndStandby end) {
      standby.send(Frames.frame(Frames.END, end.seq()));
    } else if (action instanceof Action.CloseStandby) {
      closeStandby();
    } else if (action instanceof Action.Promote promote) {
      promote(promote);
    } else if (action instanceof Action.End end) {
      link.send(Frames.frame(Frames.END, end.seq()));
    } else if (action instanceof Action.Close) {
      link.disconnect();
    } else if (action instanceof Action.Finish) {
      done = true;
      Homes.remember(spec, identity, protocol.server());
      output.finish(null);
    }
  }

  private void seal(long seq) throws IOException {
    BundleBuilder.Sealed sealed = builder.seal(seq);
    inflight.keep(seq, sealed.frame());
    metrics.bundles().inc();
    metrics.records().inc(sealed.rows());
    waiting(0, 0);
    happen(new Event.Sealed(seq, 0, sealed.frame().length));
  }

  private void spill(long seq) {
    try {
      inflight.spill(seq);
    } catch (IOException e) {
      throw new CausalStageException(
          "StorageUnavailable", identity + ": cannot spill in-flight records to " + spec.spillDir() + ": " + e, e);
    }
  }

  /** What it was sent goes out first, as far as it takes it soon: it may be the end of the epoch. */
  private void closeStandby() throws IOException {
    standbyAt = NEVER;
    flush(standby);
    for (long until = now() + LINGER_MS; standby.open() && standby.backlog() && now() < until && !stopping; ) {
      await(until - now());
      standby.flush();
    }
    standby.disconnect();
  }

  private void promote(Action.Promote promote) {
    isPromoting = true;
    Link lost = link;
    link = standby;
    standby = lost;
    FrameBuffer frame = new FrameBuffer(64);
    promote.fence().put(frame);
    frame.putLong(promote.emittedOutput());
    link.send(frame.frame(Frames.PROMOTE));
  }

  private ObjectNode hello(Fence fence, boolean fresh, List<Failover> failovers) {
    ObjectNode body = JSON.createObjectNode();
    body.put("version", Frames.VERSION);
    body.put("token", spec.token());
    body.put("generation", spec.generation());
    body.put("node", identity.node());
    body.put("instance", identity.instance());
    body.put("epoch", identity.epoch());
    body.put("fence", fence.text());
    body.put("fresh", fresh);
    ArrayNode said = body.putArray("failovers");
    for (Failover failover : failovers) {
      said.addArray().add(failover.fence().text()).add(failover.logOffset());
    }
    body.put("stage_attempt", identity.stageAttempt());
    body.put("task_attempt", identity.taskAttempt());
    body.put("mode", spec.mode());
    return body;
  }

  private static byte[] resume(long emittedOutput, long logStart, byte[] log) {
    FrameBuffer frame = new FrameBuffer(64 + log.length);
    frame.putLong(emittedOutput);
    frame.putLong(logStart);
    frame.put(log);
    return frame.frame(Frames.RESUME);
  }

  private void fail(Action.Fail failure, Event event) {
    done = true;
    if (event instanceof Event.ReplicaError error && !error.retryable()) {
      output.finish(new CausalStageException(failure.error(), failure.message()));
    } else {
      failed(new CausalStageException(failure.error(), identity + ": " + failure.message()));
    }
  }

  /**
   * Tells the replica server first, as a replica does with its own failures, and then Spark: when this task fails, so
   * do its neighbours, and Spark reports whichever it hears of first.
   */
  private void failed(CausalStageException failure) {
    try {
      report(failure);
    } catch (IOException e) {
      LOG.warn("{}: could not tell the replica server why the task fails: {}", identity, e.toString());
    } finally {
      output.finish(failure);
    }
  }

  private void report(CausalStageException failure) throws IOException {
    String text = failure.getMessage().substring(failure.getMessage().indexOf(']') + 2);
    ObjectNode body = JSON.createObjectNode();
    body.put("version", Frames.VERSION);
    body.put("token", spec.token());
    body.putObject("admin")
        .put("kind", "ReportFailure")
        .put("generation", spec.generation())
        .put("node", identity.node())
        .put("instance", identity.instance())
        .put("epoch", identity.epoch())
        .put("error", failure.error())
        .put("message", text.substring(0, Math.min(text.length(), REPORT_CHARACTERS)));
    boolean connected = link.connect(servers.get(connectServer).fromHere());
    link.send(Frames.frame(Frames.HELLO, JSON.writeValueAsBytes(body)));
    for (long until = now() + REPORT_MS; now() < until && !stopping; ) {
      if (!connected) {
        connected = link.finishConnect();
      }
      if (connected) {
        link.flush();
        if (link.fill() != 0) {
          return;
        }
      }
      await(until - now());
    }
  }

  private static long now() {
    return System.nanoTime() / 1_000_000;
  }
}
