package org.clonos.spark.release;

import jakarta.servlet.http.HttpServletRequest;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import scala.Function0;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set$;
import scala.xml.Node;

/**
 * Calls of Spark whose signature is not the same in all releases that this jar runs in; it is compiled against the newest.
 * Each release has only appended parameters: all arguments of the newest are given, and an earlier one gets the first of
 * them.
 */
public final class SparkCalls {
  private SparkCalls() {}

  /** Spark's own mapping to Arrow, without large variable-width types. */
  public static Schema toArrowSchema(StructType schema, String timezone) {
    return (Schema) call(methods(ArrowUtils.class, "toArrowSchema"), schema, timezone, true, false, false);
  }

  /** The columns of a table; defaults of columns are not kept. */
  public static Column[] columns(StructType schema) {
    return (Column[]) call(methods(CatalogV2Util.class, "structTypeToV2Columns"), schema, false);
  }

  /** A page with Spark's head and tabs. */
  @SuppressWarnings("unchecked")
  public static Seq<Node> headerSparkPage(
      HttpServletRequest request, String title, Function0<Seq<Node>> content, SparkUITab tab) {
    Stream<Method> overloads = methods(UIUtils.class, "headerSparkPage");
    return (Seq<Node>) call(overloads, request, title, content, tab, Option.empty(), false, false, false);
  }

  /** What an operator tells of a batch: how many entries it keeps, and what it did with rows; Spark's times are 0. */
  public static StateOperatorProgress operatorProgress(
      String name, long entries, long updated, long removed, long dropped, long instances, Map<String, Long> custom) {
    Stream<Constructor<?>> overloads = Arrays.stream(StateOperatorProgress.class.getConstructors());
    Object[] all = {
      name, entries, updated, 0L, removed, 0L, 0L, 0L, dropped, instances, instances, custom, Set$.MODULE$.empty()
    };
    return (StateOperatorProgress) call(overloads, all);
  }

  private static Stream<Method> methods(Class<?> of, String name) {
    return Arrays.stream(of.getMethods()).filter(one -> one.getName().equals(name));
  }

  private static Object call(Stream<? extends Executable> overloads, Object... all) {
    Executable longest =
        overloads
            .filter(one -> one.getParameterCount() <= all.length)
            .max(Comparator.comparingInt(Executable::getParameterCount))
            .orElseThrow();
    Object[] taken = Arrays.copyOf(all, longest.getParameterCount());
    try {
      return longest instanceof Constructor<?> made ? made.newInstance(taken) : ((Method) longest).invoke(null, taken);
    } catch (InvocationTargetException error) {
      throw SparkCalls.<RuntimeException>asThrown(error.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException("this release of Spark cannot be called: " + longest, error);
    }
  }

  /** What Spark has thrown, as it is: Scala declares no checked exceptions. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E asThrown(Throwable error) throws E {
    throw (E) error;
  }
}
