"""Pictures by matplotlib, as SVG text.

Nothing of matplotlib's global state is used or changed, and the same figure gives the same text.
"""

from __future__ import annotations

import io
from typing import Any, Final

from clonos.extras import needs

DOTS_PER_INCH: Final = 72  # one unit of an SVG
_SETTINGS: Final[Any] = {"svg.fonttype": "none", "svg.hashsalt": "clonos"}
_NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def figure(width: float, height: float) -> Any:
    """A new one, its size in units of the SVG. Raises ConfigurationError without matplotlib."""
    needs("matplotlib", "a picture")
    from matplotlib.figure import Figure

    return Figure(
        figsize=(width / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH, layout="constrained"
    )


def svg(drawn: Any) -> str:
    """The text of its SVG element, which a page may hold as it is."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        drawn.savefig(text, format="svg", metadata=_NO_METADATA)
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
