"""`clonos status`: what a running query is doing, for people and for programs."""

from clonos.tools.status.command import add_arguments, run

__all__ = ["add_arguments", "run"]
