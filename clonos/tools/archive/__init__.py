"""`clonos archive`: what is kept of epochs that are over, and whether it can be repeated."""

from clonos.tools.archive.command import add_arguments, run

__all__ = ["add_arguments", "run"]
