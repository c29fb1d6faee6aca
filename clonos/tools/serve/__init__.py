"""`clonos serve`: queries in a browser, live, with what to do next to each warning."""

from clonos.tools.serve.command import add_arguments, run

__all__ = ["add_arguments", "run"]
