"""The protocol, sans-IO: events in, actions out; time and entropy are arguments.

Nothing here reads a clock, draws entropy, opens a file or a socket, or starts a thread. Spark's conduits and replica
processes drive it for real, the simulator drives it under virtual time.
"""
