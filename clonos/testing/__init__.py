"""For tests of users' own queries: output that judges itself, and failures at chosen points.

Importing this package loads nothing heavy.
"""
