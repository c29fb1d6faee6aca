package org.clonos.spark;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;
import org.clonos.spark.block.BlockWriter;
import org.clonos.spark.block.PackingTask;
import org.clonos.spark.block.Readers;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** Where a causal query begins: the rows of a source become blocks. */
public final class PackingStage {
  private PackingStage() {}

  /**
   * The Dataset of the source's blocks. Every one of the readers gets all rows, in the partition that its destination
   * says. A block has at most so many rows, and as few as there are when it is made. The {@code timed} readers are told
   * watermarks, in every one of their partitions ({@link Readers}).
   */
  public static Dataset<Row> apply(
      Dataset<Row> input,
      int number,
      List<Integer> timed,
      List<Integer> firsts,
      List<Integer> counts,
      int maxRows,
      long maxBytes) {
    Readers readers = Readers.of(number, timed, firsts, counts);
    List<String> hidden = readers.hidden();
    List<String> columns =
        Arrays.stream(input.schema().fields())
            .map(field -> field.name() + " " + field.dataType().catalogString())
            .toList();
    if (columns.size() < hidden.size() || !columns.subList(0, hidden.size()).equals(hidden)) {
      throw new IllegalArgumentException("a source's rows begin with the columns " + hidden + ", not " + columns);
    }
    StructType user =
        new StructType(Arrays.copyOfRange(input.schema().fields(), hidden.size(), columns.size()));
    BlockWriter.arrow(user);
    return TypedStage.on(
        input, Plans.classic(input).logicalPlan(), new PackingFunction(user, readers, maxRows, maxBytes));
  }

  private static final class PackingFunction extends AbstractFunction1<Iterator<Object>, Iterator<Object>>
      implements Serializable {
    private static final long serialVersionUID = 1L;

    private final StructType user;
    private final Readers readers;
    private final int maxRows;
    private final long maxBytes;

    PackingFunction(StructType user, Readers readers, int maxRows, long maxBytes) {
      this.user = user;
      this.readers = readers;
      this.maxRows = maxRows;
      this.maxBytes = maxBytes;
    }

    @Override
    public Iterator<Object> apply(Iterator<Object> input) {
      return PackingTask.start(input, user, readers, maxRows, maxBytes);
    }

    @Override
    public String toString() {
      return "clonos source";
    }
  }
}
