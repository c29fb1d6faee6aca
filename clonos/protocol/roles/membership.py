"""Which hosts' logs count, so that every instance of a start of the query asks the same ones.

A query goes on without a host that its driver cannot reach. An instance that begins meanwhile asks every other holder,
and goes live where their answers end. From then on the host's logs tell another history: an instance that asked the
host later would find there what others have given up, and depend on it.

So a host counts from a moment when its logs are empty, or are what the last start counted, until the driver goes on
without it. For that time it has a *membership*, a token that the driver makes. The driver keeps the memberships in the
checkpoint, and removes one there before an instance goes on without its host. The host keeps the token beside its logs,
and sets them aside when it is asked under another token (`sets_aside`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Memberships:
    """As the driver that leads the query knows them. `kept` are those of the last start, from the checkpoint; `make`
    gives a token that was never given before; `keep` writes down those of this start, durably; `check_leads` raises
    Fenced where another driver leads. Not safe to use from several threads at once."""

    def __init__(
        self,
        kept: Mapping[str, str],
        make: Callable[[], str],
        *,
        keep: Callable[[Mapping[str, str]], None],
        check_leads: Callable[[], None],
    ) -> None:
        self._kept = dict(kept)
        self._make = make
        self._keep = keep
        self._check_leads = check_leads
        self._offered: dict[str, str] = {}
        self._counted: dict[str, str] = {}
        self._any_kept = bool(kept)  # in the checkpoint, so that it has to be taken back there
        self._begun = False

    def token(self, host: str) -> str:
        """What the host is to be asked under."""
        for known in (self._counted, self._kept, self._offered):
            if host in known:
                return known[host]
        self._offered[host] = token = self._make()
        return token

    def joins(self, host: str, token: str) -> bool:
        """The host has granted what it was asked under this token; whether it counts from now on. It does not where the
        query has gone on without it since it was asked: then it is asked again, under another token."""
        if token != self.token(host):
            return False
        counted = {**self._counted, host: token}
        if self._begun:
            self._write(counted)
        self._counted = counted
        return True

    def begins(self) -> list[str]:
        """Instances begin after this, and ask those hosts that count by now. A host of the last start that is not among
        them counts again only with empty logs; which ones these are."""
        left = sorted(self._kept.keys() - self._counted.keys())
        self._kept.clear()
        if self._counted or self._any_kept:
            self._write(self._counted)
        self._begun = True
        return left

    def leaves(self, host: str) -> None:
        """The query may go on without a host when this returns.

        The next driver claims its generation before it reads what counts. So where this one still leads after it has
        written, the next one finds it.
        """
        left = {each: token for each, token in self._counted.items() if each != host}
        if self._begun:
            self._check_leads()
            self._write(left)
            self._check_leads()
        self._counted = left
        for known in (self._kept, self._offered):
            known.pop(host, None)

    def _write(self, memberships: Mapping[str, str]) -> None:
        self._keep(memberships)
        self._any_kept = bool(memberships)


def sets_aside(kept: str | None, asked: str) -> bool:
    """Whether a host that keeps this token beside its logs sets them aside when it is asked under another one. Logs
    without a token are of a version that had none; a driver that names none is of such a version."""
    return kept is not None and asked != "" and kept != asked
