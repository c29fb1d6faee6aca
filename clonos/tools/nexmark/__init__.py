"""NexMark: an online auction as a stream of persons, auctions and bids, and the queries the field runs over it.

`workload` says what is generated (seed, kinds, hot items, pace), `events` makes any range of it, `payload` turns that
into records, `feed` writes them into embedded logs; `queries` lists the queries, one module each.
"""

from __future__ import annotations
