"""`clonos inject`: makes a part of a running query fail, to see what it does."""

from clonos.tools.inject.command import add_arguments, run

__all__ = ["add_arguments", "run"]
