package org.clonos.spark.ui;

import jakarta.servlet.http.HttpServletRequest;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import org.clonos.spark.release.SparkCalls;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.xml.Node;
import scala.xml.Unparsed;

/** Spark's head and tabs, and below them the page as it is. */
final class LivePage extends WebUIPage {
  private static final String FRAME =
      "<iframe src=\"%s\" title=\"Clonos\" style=\"width:100%%;height:calc(100vh - 9rem);border:0\"></iframe>";

  private final CausalTab tab;

  LivePage(CausalTab tab) {
    super("");
    this.tab = tab;
  }

  @Override
  public Seq<Node> render(HttpServletRequest request) {
    String address = UIUtils.prependBaseUri(request, CausalTab.livePath(), "");
    Seq<Node> frame = CollectionConverters.asScala(java.util.List.<Node>of(new Unparsed(FRAME.formatted(address)))).toSeq();
    return SparkCalls.headerSparkPage(request, "Causal queries", () -> frame, tab);
  }
}
