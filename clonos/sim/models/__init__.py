"""Simple recoveries that one would think of first, each with the shortest execution that breaks it.

One process takes records of sources, and sends rows to two receivers, whose rows are seen at once. It is lost, goes
back to its checkpoint, and takes what comes again. What tells receivers which rows they have had already? The models
are small enough to look at every execution up to a bound, so an answer is certain: it breaks in so many steps and in
no fewer, or it holds.
"""
