"""Recoveries: what is recorded so that work can be repeated, and how it is repeated. One folder for each protocol."""
