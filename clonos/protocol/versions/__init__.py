"""Versions of a query: what a checkpoint is bound to, and from which epoch on another program runs."""
