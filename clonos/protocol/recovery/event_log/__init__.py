"""Event log: a transaction has what an instance has taken, changed and sent, before any of it leaves.

LOG.io (rollback recovery and data lineage by logged events), with blocks of rows for events: a transaction is done for
an input set, the bundles since the one before; its rows are *undone* until all readers have had them.
"""
