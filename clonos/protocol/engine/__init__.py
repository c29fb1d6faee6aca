"""The engine: one instance takes input, runs steps and hands on output. It knows no recovery by name."""
