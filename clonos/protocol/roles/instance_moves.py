"""Whether an instance may have run on another server than the one it begins on.

A standby that takes over goes on there, and what it writes is there alone. So it does not matter whether the instance's
own operator has a standby now: it may have had one in an earlier start, which another operator of the query still has,
or whose server is not started any more and has left its logs behind.

An instance that may have moved is brought back by other rules than one that has always been here
(`protocol.recovery.causal.retrieval`, `protocol.roles.incarnation`).
"""

from __future__ import annotations


def may_have_moved(*, other_servers: bool, left_behind: bool) -> bool:
    """`other_servers`: the query has more than one in this start, on this host or on others. `left_behind`: a server
    that is not started any more has left logs of instances on this host."""
    return other_servers or left_behind
