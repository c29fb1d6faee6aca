"""Everything that Clonos keeps on disk: causal logs, keyed state, timers and snapshots.

Modules here are imported one by one (`clonos.storage.keyed_state`, ...), because RocksDB and Arrow are costly to
load. No database may be opened in a process that forks later: RocksDB's background threads do not survive it.
"""
