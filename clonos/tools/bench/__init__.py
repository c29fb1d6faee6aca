"""`clonos bench`: NexMark queries, natively and causally, undisturbed and while something is killed; what it cost.

`cell` is one configuration, `side` runs it, `watch` follows its output from the outside, `metrics` says what the
figures mean, `results` is the file they go into.
"""

from __future__ import annotations
