"""`clonos checkpoint`: what a checkpoint is bound to, and what a given program would change."""

from clonos.tools.checkpoint.command import add_arguments, run

__all__ = ["add_arguments", "run"]
