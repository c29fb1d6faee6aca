package org.clonos.spark.kafka;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Leaves out the messages of a stream that came before, by the rule of {@code clonos/kafka/repetitions.py}: per channel,
 * those whose position is not above the last one. A stateful operator of Spark's, for both of its modes.
 */
public final class WithoutRepetitions extends StatefulProcessor<String, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final int position;
  private final int offset;
  private transient ValueState<Long> last;

  private WithoutRepetitions(int position, int offset) {
    this.position = position;
    this.offset = offset;
  }

  /**
   * The rows without repetitions. {@code channel}: a column of text, which also names the partition, null where a message
   * can be no repetition; {@code position}: a column of longs; {@code offset}: the order of a partition's messages.
   */
  public static Dataset<Row> of(Dataset<Row> rows, String channel, String position, String offset) {
    int at = rows.schema().fieldIndex(channel);
    MapFunction<Row, String> key = row -> row.isNullAt(at) ? "" : row.getString(at);
    var processor =
        new WithoutRepetitions(rows.schema().fieldIndex(position), rows.schema().fieldIndex(offset));
    return rows.groupByKey(key, Encoders.STRING())
        .transformWithState(
            processor, TimeMode.None(), OutputMode.Append(), Encoders.row(rows.schema()));
  }

  @Override
  public void init(OutputMode mode, TimeMode timeMode) {
    last = getHandle().getValueState("last", Encoders.LONG(), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(String channel, Iterator<Row> rows, TimerValues timers) {
    if (channel.isEmpty()) {
      return rows;
    }
    List<Row> ordered = new ArrayList<>();
    rows.foreach(ordered::add); // an exchange keeps no order
    ordered.sort(Comparator.comparingLong(row -> row.getLong(offset)));
    long before = last.exists() ? last.get() : -1L;
    long reached = before;
    List<Row> shown = new ArrayList<>();
    for (Row row : ordered) {
      if (row.getLong(position) > reached) {
        reached = row.getLong(position);
        shown.add(row);
      }
    }
    if (reached > before) {
      last.update(reached);
    }
    return CollectionConverters.asScala(shown.iterator());
  }
}
