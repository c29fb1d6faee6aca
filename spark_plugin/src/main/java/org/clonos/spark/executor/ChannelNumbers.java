package org.clonos.spark.executor;

import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.unsafe.types.UTF8String;
import org.clonos.spark.task.CausalStageException;
import org.clonos.spark.task.CausalStageException;

/**
 * The numbers of source channels as the tasks of this JVM know them, one table for each source of each start of a
 * query. A task that meets a name without a number asks the driver, once; the driver answers when the number is
 * durable.
 */
public final class ChannelNumbers {
  private static final Map<UTF8String, Table> TABLES = new ConcurrentHashMap<>();
  private static volatile Asks driver;
  private static volatile Table last;

  /** The way to the driver. */
  interface Asks {
    /** What {@link Numbering#ask} gives. */
    String[] ask(String table, String name, long known) throws Exception;
  }

  private ChannelNumbers() {}

  static void connect(Asks driver) {
    ChannelNumbers.driver = driver;
  }

  /** Called for every record by code that Spark generates; {@code table} is always the same object there. */
  public static long number(UTF8String table, UTF8String name) {
    if (name == null) {
      throw new CausalStageException("InputError", "a record has the channel null, which names no place");
    }
    Table known = last;
    if (known == null || known.literal != table) {
      known = TABLES.computeIfAbsent(table, ChannelNumbers::opened);
      known.literal = table;
      last = known;
    }
    Long number = known.numbers.get(name);
    return number != null ? number : known.learn(name);
  }

  /** Tables of earlier starts of the query are not asked for again. */
  private static Table opened(UTF8String key) {
    String text = key.toString();
    String query = text.substring(0, text.indexOf('/') + 1);
    String start = text.substring(0, text.lastIndexOf('/') + 1);
    for (Iterator<UTF8String> others = TABLES.keySet().iterator(); others.hasNext(); ) {
      String other = others.next().toString();
      if (other.startsWith(query) && !other.startsWith(start)) {
        others.remove();
      }
    }
    return new Table(text);
  }

  private static final class Table {
    final Map<UTF8String, Long> numbers = new ConcurrentHashMap<>();
    private final String key;
    private long known; // the first number that the driver has not told
    volatile UTF8String literal;

    Table(String key) {
      this.key = key;
    }

    synchronized long learn(UTF8String name) {
      Long number = numbers.get(name);
      if (number == null) {
        String text = name.toString();
        if (!name.equals(UTF8String.fromString(text))) { // other bytes would be the same text
          throw new CausalStageException(
              "InputError",
              "a record's channel has a name that is not UTF-8: '" + text + "'; give causal() one that is, such as hex(...)");
        }
        String[] said = ask(text);
        for (int i = 0; i + 1 < said.length; i += 2) {
          long told = Long.parseLong(said[i + 1]);
          numbers.put(UTF8String.fromString(said[i]), told);
          known = Math.max(known, told + 1);
        }
        number = numbers.get(name);
        if (number == null) {
          throw new CausalStageException(
              "StorageUnavailable", "the driver has not said the number of channel '" + text + "'");
        }
      }
      return number;
    }

    private String[] ask(String name) {
      Asks way = driver;
      if (way == null) {
        throw new CausalStageException(
            "ConfigurationError",
            "this executor cannot ask the driver for the number of channel '"
                + name
                + "': the plugin "
                + ReplicaPlugin.class.getName()
                + " is not in spark.plugins");
      }
      try {
        String[] said = way.ask(key, name, known);
        if (said.length % 2 == 1) {
          throw new CausalStageException(said[0], said[1]);
        }
        return said;
      } catch (CausalStageException refused) {
        throw refused;
      } catch (Exception error) {
        throw new CausalStageException(
            "StorageUnavailable",
            "the driver could not be asked for the number of channel '" + name + "': " + error,
            error);
      }
    }
  }
}
