"""The tab of the Spark UI that shows causal queries (`org.clonos.spark.ui.CausalTab`)."""

from __future__ import annotations

import sys
from typing import Any, Final

_PAGE: Final = ("-m", "clonos.cli", "serve")


def show_in_tab(spark: Any, location: str) -> None:
    """From now on the tab has the query of this checkpoint. Nothing happens where the session has no UI."""
    context = spark.sparkContext._jsc.sc()
    spark._jvm.org.clonos.spark.ui.CausalTab.show(context, [sys.executable, *_PAGE], location)
