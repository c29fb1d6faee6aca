"""How numbers of source channels (`clonos.protocol.source_channels`) become durable, and which driver gives them.

They are kept on pages. A page is named by the start of the query that wrote it and by its number in that start; page 0
of a start says everything that was known when it began, the others what came since, so the pages of the highest start
say all there is. Page 0 is written before sinks and replica servers hear of the start, and before it gives a task a
number. What an overtaken driver still writes therefore counts for nothing, and it has told no task either: it looks
whether it leads when the page is durable, and the one that took over had claimed its start before it read the pages.
And a checkpoint that was restored from an older copy is found out: the sinks have heard of a start that has no page.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from clonos.errors import CheckpointMismatch
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.ids import NodeId
from clonos.protocol.source_channels import ChannelNumbers, Numbered

Steps: TypeAlias = Generator[None, None, None]
"""Between any two steps of the storage, time may pass."""


class Page(NamedTuple):
    """The name of one."""

    start: Generation
    number: int


class Shelf(Protocol):
    """Where pages are kept. Each call is one step of the storage."""

    def pages(self) -> Collection[Page]: ...

    def read(self, page: Page) -> list[Numbered]: ...

    def write(self, page: Page, entries: Collection[Numbered]) -> None:
        """Durable when this returns."""
        ...

    def forget(self, page: Page) -> None: ...

    def check_leads(self) -> None:
        """Raises Fenced where another driver has taken the query over."""
        ...


def standing(pages: Iterable[Page]) -> list[Page]:
    """Those that count, in order. Raises CheckpointMismatch where one is missing."""
    known = sorted(pages)
    if not known:
        return []
    found = [page for page in known if page.start == known[-1].start]
    if [page.number for page in found] != list(range(len(found))):
        raise CheckpointMismatch(
            f"of the channel numbers that start {found[0].start} has given only pages "
            f"{', '.join(str(page.number) for page in found)} are there",
            hint="Restore the checkpoint's folder clonos/channels from a copy",
        )
    return found


def kept(shelf: Shelf, listed: Iterable[Page]) -> ChannelNumbers:
    """The numbers on those of the listed pages that count. Raises CheckpointMismatch."""
    return ChannelNumbers(one for page in standing(listed) for one in shelf.read(page))


class Numbering:
    """The numbering by one driver."""

    def __init__(self, shelf: Shelf) -> None:
        self.numbers = ChannelNumbers()
        self._shelf = shelf
        self._start = NO_GENERATION  # the one that it leads
        self._next = 0

    def begin(
        self, start: Generation, known: Iterable[Numbered] = (), *, heard_of: Generation = NO_GENERATION
    ) -> Steps:
        """Before sinks and servers hear of this start: take over what earlier ones have given; `known` where there was
        no page, and numbers none the less. `heard_of` is the highest start of which the sinks have heard. Raises
        CheckpointMismatch, Fenced."""
        if start == self._start:
            return
        listed: Collection[Page] = ()
        if not self._start:
            listed = self._shelf.pages()
            yield
            last = max((page.start for page in listed), default=heard_of)
            if last < heard_of:
                raise older_copy(last, heard_of)
            self.numbers = kept(self._shelf, listed) if listed else ChannelNumbers(known)
        before = [Page(self._start, number) for number in range(self._next)]
        self._start, self._next = start, 0
        yield from self._keep(self.numbers.entries())
        for page in [*listed, *before]:
            if page.start < start:
                self._shelf.forget(page)

    def give(self, asked: Iterable[tuple[NodeId, str]]) -> Steps:
        """Numbers for these names, by node: `numbers` has them when this is over. Raises Fenced."""
        new = self.numbers.assign(asked)
        if new:
            yield from self._keep(new)
            self.numbers.add(new)

    def _keep(self, entries: Collection[Numbered]) -> Steps:
        self._shelf.write(Page(self._start, self._next), entries)
        self._next += 1
        yield
        self._shelf.check_leads()


def older_copy(last: Generation, heard_of: Generation) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"the checkpoint knows the numbers of source channels up to start {last} of the query, and the sink has heard "
        f"of start {heard_of}: it was restored from an older copy, and channels that have been numbered since would "
        "get other numbers, by which records that are visible are known",
        hint="Restore the checkpoint as it was last, or begin anew with a new checkpointLocation and another sink",
    )
