"""What `benchmarks/peers.py` is made of: one input, one operator, several systems that run it, one reader of each.

`feed` writes the input, `visible` reads what each system shows, `sides` starts, kills and stops them, `figures` says
what came out. The `*_job` modules are the jobs themselves; each runs in a process, and where it is not ours in a
virtual environment (`environment`), of its own.
"""
