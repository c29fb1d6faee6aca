"""Coordinated checkpoints: rounds of markers, alignment, and output that is seen with its round.

Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows", 2015 (algorithm 1); Chandy and Lamport,
"Distributed Snapshots: Determining Global States of Distributed Systems", 1985.
"""
