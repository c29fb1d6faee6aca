"""`clonos classify`: finds out by experiment what a function depends on, and which recovery suffices for it."""

from clonos.tools.classify.command import add_arguments, run

__all__ = ["add_arguments", "run"]
