"""The driver's side: from a lazy plan to a running Spark query, its checkpoint and its commits."""
