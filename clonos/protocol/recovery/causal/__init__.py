"""Causal logging: determinants, the logs they stand in, how logs are shared, retrieved and replayed.

Clonos, SIGMOD 2021.
"""
