"""`clonos checkpoint`: what a checkpoint is bound to, and what a given program would change."""

from clonos.checkpoint_command.command import add_arguments, run

__all__ = ["add_arguments", "run"]
