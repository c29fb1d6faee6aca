"""Interception: what user functions ask of Python's clocks and random generators is recorded, and repeated exactly.

A function that knows nothing of `ctx` calls `time.time()`, `random.random()` or `uuid.uuid4()`. With
`spark.clonos.intercept` the process that runs it has other functions under these names (`install`). Where the user's
function asks (`active`), they answer from what the step records (`answers`). Everywhere else they do what the real ones
do: in other threads, in the runtime's own code, in closures whose result is recorded as a whole, and in what happens
below the function and is not its matter (`callers`, `surroundings`).
"""
