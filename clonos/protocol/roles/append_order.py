"""Which messages count in a log that older writers can still append to.

Each message bears its writer's fence, and its number under that fence. It counts unless one before it has a higher
fence, or the same one and a number as high: then it came from a writer that was taken over, or came late, or twice. All
readers decide alike, and a message that counts does so for ever, since only what stands before it decides.

So a fence is raised by a message without content (a *mark*), and a writer whose message lies behind one of a higher
fence knows that it was taken over. It need not read the log for that: where its messages lie side by side, no other
message stands between them. Only when an offset is not the one that it expected, it reads what came between.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.errors import Fenced, Where
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin

MARK = 0
"""The number of a message that only raises a fence: below all numbers of the writer that takes it."""


@dataclass(slots=True)
class AppendOrder:
    """The fence and number of the last message that counted."""

    fence: Fence = LOWEST_FENCE
    number: int = -1

    def counts(self, fence: Fence, number: int) -> bool:
        """Whether the next message of the log does."""
        if (fence, number) <= (self.fence, self.number):
            return False
        self.fence, self.number = fence, number
        return True


def check_appending(mine: Fence, standing: AppendOrder, *, origin: Origin) -> None:
    """Raises Fenced where a message of a higher fence stands in the log."""
    if standing.fence > mine:
        raise Fenced(
            f"sink node {origin.node} was taken over: fence {standing.fence:x} stands in its log, this writer holds "
            f"{mine:x}",
            where=Where(instance=origin.instance),
        )
