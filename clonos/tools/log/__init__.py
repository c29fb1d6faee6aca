"""`clonos log`: read causal logs and dead letters, check them, and run a function on a dead letter again."""

from clonos.tools.log.command import add_arguments, run

__all__ = ["add_arguments", "run"]
