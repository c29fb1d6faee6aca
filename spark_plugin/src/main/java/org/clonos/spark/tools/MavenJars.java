package org.clonos.spark.tools;

import java.util.Arrays;
import org.apache.spark.util.MavenUtils;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Fetches jars from the repositories that Spark itself would ask for {@code spark.jars.packages}, and prints a path a line.
 *
 * <p>Arguments: the folder for Ivy's files, whether what they depend on is wanted, a file of Ivy settings or an empty text,
 * and the coordinates.
 */
public final class MavenJars {
  private MavenJars() {}

  public static void main(String[] arguments) {
    Option<String> folder = Option.apply(arguments[0]);
    boolean withDependencies = Boolean.parseBoolean(arguments[1]);
    var settings =
        arguments[2].isEmpty()
            ? MavenUtils.buildIvySettings(Option.empty(), folder, true, System.err)
            : MavenUtils.loadIvySettings(arguments[2], Option.empty(), folder, System.err);
    String coordinates = String.join(",", Arrays.copyOfRange(arguments, 3, arguments.length));
    Seq<String> nothing = CollectionConverters.asScala(java.util.List.<String>of()).toList();
    var found =
        MavenUtils.resolveMavenCoordinates(
            coordinates, settings, Option.empty(), withDependencies, nothing, false, System.err);
    for (String path : CollectionConverters.asJava(found)) {
      System.out.println(path);
    }
  }
}
