"""Runs of causal queries as events of OpenLineage."""
