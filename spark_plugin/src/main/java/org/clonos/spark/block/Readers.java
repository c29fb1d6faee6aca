package org.clonos.spark.block;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The operators and sinks that read a source, by index. {@code timed} are those that have event time; the partitions of
 * reader {@code r} are {@code counts[r]}, from {@code firsts[r]} on. What a reader needs of a row stands in columns in
 * front of the user's.
 */
public record Readers(int number, int[] timed, int[] firsts, int[] counts) implements Serializable {
  static final int CHANNEL = 0;
  static final int POSITION = 1;
  static final int DESTINATION = 2;
  private static final String EVENT_TIME = "_clonos_event_time";
  private static final int NO_COLUMN = -1;
  private static final long serialVersionUID = 1L;

  /** Throws IllegalArgumentException where the partitions of a timed reader are not said. */
  public static Readers of(int number, List<Integer> timed, List<Integer> firsts, List<Integer> counts) {
    for (int i = 0; i < timed.size(); i++) {
      int reader = timed.get(i);
      boolean known = reader >= 0 && reader < Math.min(number, Math.min(firsts.size(), counts.size()));
      if (!known || timed.indexOf(reader) != i || firsts.get(reader) < 0 || counts.get(reader) < 1) {
        throw new IllegalArgumentException(
            "readers " + timed + " of " + number + " have event time, at partitions from " + firsts + " on, " + counts
                + " of them");
      }
    }
    return new Readers(number, array(timed), array(firsts), array(counts));
  }

  /** The columns in front of the user's, with their types. */
  public List<String> hidden() {
    List<String> hidden = new ArrayList<>(List.of("_clonos_channel bigint", "_clonos_position bigint"));
    for (int reader = 0; reader < number; reader++) {
      hidden.add(BlockRow.DESTINATION + "_" + reader + " int");
    }
    for (int reader : timed) {
      hidden.add(EVENT_TIME + "_" + reader + " bigint");
    }
    return hidden;
  }

  int userColumn() {
    return DESTINATION + number + timed.length;
  }

  /** By reader, the column of the event time, or -1. */
  int[] timeColumns() {
    int[] columns = new int[number];
    Arrays.fill(columns, NO_COLUMN);
    for (int i = 0; i < timed.length; i++) {
      columns[timed[i]] = DESTINATION + number + i;
    }
    return columns;
  }

  private static int[] array(List<Integer> numbers) {
    return numbers.stream().mapToInt(Integer::intValue).toArray();
  }
}
