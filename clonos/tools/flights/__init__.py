"""The main job on real input: the flights that left New York in 2013.

`data` turns the table of flights into departure and arrival events and replays them; `weather` is the outside
world (a local HTTP service whose answers change); `operators` are the two user functions, nondeterministic in
every way that the library covers; `judge` reads their output as two ledgers.
"""
