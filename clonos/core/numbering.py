"""How the numbers of source channels (`clonos.core.channels`) become durable, and who may give them.

They are kept on pages. A page is named by the start of the query that wrote it and by its number in that start; page 0
of a start says everything that was known when it began, the others what came since, so the pages of the highest start
say all there is. A driver that begins writes its own page 0 before it gives a number to anybody. What an overtaken
driver still writes therefore counts for nothing, and it has told nobody either: it looks whether it leads when the page
is durable, and the one that took over had claimed its start before it read the pages.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from clonos.core.channels import ChannelNumbers, Numbered
from clonos.errors import CheckpointMismatch

Steps: TypeAlias = Generator[None, None, None]
"""Between any two steps of the storage, time may pass."""


class Page(NamedTuple):
    """The name of one."""

    start: int
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


class Numbering:
    """One driver's, from when it leads on."""

    def __init__(self, shelf: Shelf, start: int) -> None:
        """`start` is the number of the first start that this driver leads."""
        self.numbers = ChannelNumbers()
        self._shelf = shelf
        self._start = start
        self._next = 0

    def begin(self, known: Iterable[Numbered] = ()) -> Steps:
        """Take over what earlier starts have given; `known` where there was no page, and numbers none the less."""
        listed = self._shelf.pages()
        yield
        self.numbers = ChannelNumbers(
            [one for page in standing(listed) for one in self._shelf.read(page)] if listed else known
        )
        yield from self._keep(self.numbers.entries())
        for page in listed:
            if page.start < self._start:
                self._shelf.forget(page)

    def give(self, asked: Iterable[tuple[int, str]]) -> Steps:
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
