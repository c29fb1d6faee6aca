package org.clonos.spark.ui;

import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;

/**
 * The tab "Clonos" of the Spark UI: the page of {@code clonos serve} over the causal queries of the application.
 *
 * <p>The page has a process of its own, which is started when the tab is looked at for the first time. Spark's own rights
 * apply: who may not see the UI does not see it either.
 */
public final class CausalTab extends SparkUITab {
  static final String PREFIX = "clonos";
  private static final String LIVE = "/" + PREFIX + "/live";
  private static final Map<SparkContext, CausalTab> TABS = new WeakHashMap<>();

  private final PageProcess process;

  private CausalTab(SparkUI ui, List<String> command) {
    super(ui, PREFIX);
    process = new PageProcess(command);
    attachPage(new LivePage(this));
    ui.attachTab(this);
    ui.attachHandler(LIVE, new LiveServlet(process), "/*");
  }

  @Override
  public String name() {
    return "Clonos";
  }

  /** Where the page is, from the UI's root. */
  static String livePath() {
    return LIVE + "/";
  }

  /**
   * From now on the tab shows this query, too. {@code command} starts the page's process; checkpoints are appended. Nothing
   * happens where the application has no UI.
   */
  public static synchronized void show(SparkContext spark, List<String> command, String checkpoint) {
    if (spark.ui().isEmpty()) {
      return;
    }
    TABS.computeIfAbsent(spark, context -> new CausalTab(context.ui().get(), command)).process.show(checkpoint);
  }
}
