package org.clonos.spark.progress;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskKilled;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.util.CollectionAccumulator;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What conduits have reported since the last progress. It comes to the driver in an accumulator of Spark's, with the end
 * of each task, in local mode and on a cluster. Of tasks that fail or are killed Spark adds up only those that end
 * before their stage is given up; of the others it tells listeners.
 */
final class Reports extends SparkListener {
  private final SparkContext spark;
  private final CollectionAccumulator<String> accumulator = new CollectionAccumulator<>();
  private final List<String> failed = new ArrayList<>();
  private final TreeMap<Long, List<InstanceReport>> ended = new TreeMap<>();
  private final Set<Long> recovered = new HashSet<>();

  Reports(SparkContext spark) {
    this.spark = spark;
    accumulator.register(spark, Option.empty(), true);
    spark.addSparkListener(this);
  }

  /** What conduits add their reports to. */
  CollectionAccumulator<String> accumulator() {
    return accumulator;
  }

  /** No more come. */
  void close() {
    spark.removeSparkListener(this);
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd end) {
    if (end.reason() instanceof ExceptionFailure failure) {
      keep(failure.accumUpdates());
    } else if (end.reason() instanceof TaskKilled killed) {
      keep(killed.accumUpdates());
    }
  }

  private void keep(Seq<AccumulableInfo> updates) {
    for (AccumulableInfo info : CollectionConverters.asJava(updates)) {
      if (info.id() == accumulator.id() && info.update().isDefined() && info.update().get() instanceof List<?> said) {
        synchronized (failed) {
          said.forEach(text -> failed.add((String) text));
        }
      }
    }
  }

  /** What there is of an epoch, and of recoveries that no progress has told of yet. */
  BatchTotals take(long epoch) {
    BatchTotals totals = new BatchTotals();
    for (String text : come()) {
      InstanceReport report = InstanceReport.decode(text);
      if (report.ended()) {
        ended.computeIfAbsent(report.epoch(), number -> new ArrayList<>()).add(report);
      }
      if (report.replaced() + report.promoted() > 0 && recovered.add(report.attempt())) {
        totals.recovered(report);
      }
    }
    ended.getOrDefault(epoch, List.of()).forEach(totals::ended);
    ended.headMap(epoch, true).clear();
    return totals;
  }

  private List<String> come() {
    List<String> come;
    synchronized (accumulator) { // as it guards itself: nothing comes in between
      come = new ArrayList<>(accumulator.value());
      accumulator.reset();
    }
    synchronized (failed) {
      come.addAll(failed);
      failed.clear();
    }
    return come;
  }
}
