"""`clonos archive`: what is kept of the past, whether it can be repeated, and what of it is to be forgotten."""

from clonos.tools.archive.command import add_arguments, run

__all__ = ["add_arguments", "run"]
