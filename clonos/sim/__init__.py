"""The deterministic simulator: whole causal queries on the protocol core, in one thread, from one seed.

The core is sans-IO, so a runtime is all that is needed to run it: here one of virtual time, in which every choice
(arrival order, delay, crash, clock, entropy) is drawn from one seed. A run is reproduced by its seed alone. The idea is
that of FoundationDB's simulation (Zhou et al., "FoundationDB: A Distributed Unbundled Transactional Key Value Store",
SIGMOD 2021, section 4); what is simulated is named after what it stands for on Spark.
"""
