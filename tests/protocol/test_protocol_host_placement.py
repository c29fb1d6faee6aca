"""Which process of a host serves which instance, and when the next one takes over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from clonos.errors import ClonosError, ReplicaLost, StorageUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.roles.admission import Fences
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.death import Death, Ending, KillReason, classify_death
from clonos.protocol.roles.host_placement import HostPlacement

HERE = Origin(2, 0)


def attempt(number: int, *, generation: int = 1, replacement: int = 0, epoch: int = 3) -> AttachRequest:
    return AttachRequest(
        HERE,
        epoch=epoch,
        fence=Fence.of(generation, number, replacement),
        fresh=replacement == 0,
        is_retry=False,
        emitted_output=0,
        log_start=0,
        log=b"",
    )


@dataclass(frozen=True, eq=False)
class Conduit:
    said: AttachRequest


class Host:
    """A runtime whose processes are numbers. It writes down what it was asked for."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.previous: Death | None = None
        self.ending: set[int] = set()
        self.deaf: set[int] = set()
        self.reports: Callable[[], None] = lambda: None
        self.lacks: ClonosError | None = None
        self.kept: dict[Origin, int] = {}
        self._started = 0
        self.placement: HostPlacement[int, Conduit] = HostPlacement(self, Fences(self._keep))

    def _keep(self, origin: Origin, fence: int) -> None:
        if self.lacks is not None:
            raise self.lacks
        self.kept[origin] = fence

    def take(self, origin: Origin) -> int:
        if self.lacks is not None:
            raise self.lacks
        self._started += 1
        self.did.append(f"start {self._started}")
        return self._started

    def catch_up(self, process: int) -> None:
        self.reports()

    def hand_over(self, process: int, connection: Conduit, previous: Death | None) -> bool:
        if process in self.deaf | self.ending:
            return False
        self.previous = previous
        self.did.append(f"epoch {connection.said.epoch} to {process}")
        return True

    def refuse(self, connection: Conduit, error: ClonosError) -> None:
        self.did.append(f"refuse {type(error).__name__}")

    def is_ending(self, process: int) -> bool:
        return process in self.ending

    def kill_process(self, process: int, *, asks_for_stacks: bool) -> None:
        self.did.append(f"{'dump and kill' if asks_for_stacks else 'kill'} {process}")

    def dies(self, process: int, signal: str = "SIGKILL") -> None:
        reason = self.placement.killed_for(process)
        self.placement.on_reaped(
            process, classify_death(Ending(HERE, process, None, signal, reason, at=0, uptime=0))
        )

    def connects(self, said: AttachRequest) -> list[str]:
        """What that makes it do."""
        before = len(self.did)
        self.placement.connects(Conduit(said))
        return self.did[before:]

    def after(self, event: Callable[[], object]) -> list[str]:
        before = len(self.did)
        event()
        return self.did[before:]


@pytest.fixture
def host() -> Host:
    """Process 1 serves the first attempt."""
    host = Host()
    assert host.connects(attempt(1)) == ["start 1", "epoch 3 to 1"]
    return host


def test_the_next_process_takes_over_when_the_last_one_is_reaped(host: Host) -> None:
    assert host.connects(attempt(1, replacement=1)) == ["dump and kill 1"]
    assert host.after(lambda: host.dies(1)) == ["start 2", "epoch 3 to 2"]
    assert host.previous is not None and host.previous.kind == "hang"


def test_another_attempt_replaces_the_process_without_asking_it_for_stacks(host: Host) -> None:
    assert host.connects(attempt(2)) == ["kill 1"]
    host.dies(1)
    assert host.previous is not None and host.previous.kind == "replaced" and host.previous.expected


def test_a_process_at_the_end_of_an_epoch_goes_on(host: Host) -> None:
    host.placement.stands_at_end(1, 3)
    assert host.connects(attempt(2, epoch=4)) == ["epoch 4 to 1"]
    assert host.connects(attempt(3, epoch=5)) == ["kill 1"], "it works on epoch 4"


def test_what_a_process_has_reported_is_heard_before_it_is_judged(host: Host) -> None:
    host.reports = lambda: host.placement.stands_at_end(1, 3)
    assert host.connects(attempt(2, epoch=4)) == ["epoch 4 to 1"]


def test_a_process_that_was_given_up_does_not_go_on(host: Host) -> None:
    host.connects(attempt(1, replacement=1))
    host.placement.stands_at_end(1, 3)
    assert host.connects(attempt(2, epoch=4)) == ["refuse Fenced"], "the one before; this one waits"
    assert host.after(lambda: host.dies(1)) == ["start 2", "epoch 4 to 2"]


def test_a_fence_that_is_not_newer_is_refused(host: Host) -> None:
    assert host.connects(attempt(1)) == ["refuse Fenced"]
    host.connects(attempt(2))
    assert host.connects(attempt(1, replacement=1)) == ["refuse Fenced"], "and the one that waits is served"
    assert host.after(lambda: host.dies(1)) == ["start 2", "epoch 3 to 2"]


def test_a_process_that_dies_by_itself_is_not_killed(host: Host) -> None:
    host.ending.add(1)
    assert host.connects(attempt(1, replacement=1)) == []
    host.dies(1, signal="SIGSEGV")
    assert host.previous is not None and host.previous.kind == "signal"


def test_a_connection_that_a_dead_process_was_to_get_waits_for_the_next_one(host: Host) -> None:
    host.placement.stands_at_end(1, 3)
    host.ending.add(1)
    assert host.connects(attempt(2, epoch=4)) == []
    assert host.after(lambda: host.dies(1)) == ["start 2", "epoch 4 to 2"]


def test_a_process_that_does_not_read_is_killed_and_its_connection_served(host: Host) -> None:
    host.placement.stands_at_end(1, 3)
    host.deaf.add(1)
    assert host.connects(attempt(2, epoch=4)) == ["kill 1"]
    assert host.after(lambda: host.dies(1)) == ["start 2", "epoch 4 to 2"]
    assert host.previous is not None and host.previous.kind == "hang"
    assert host.after(lambda: host.placement.is_deaf(2)) == ["kill 2"]


def test_a_process_that_cannot_be_killed_keeps_no_conduit_waiting(host: Host) -> None:
    host.connects(attempt(2))
    assert host.after(lambda: host.placement.cannot_be_killed(1, "process 1")) == ["refuse ReplicaLost"]
    assert host.after(lambda: host.dies(1)) == []


def test_a_host_without_processes_refuses(host: Host) -> None:
    host.connects(attempt(2))
    host.lacks = ReplicaLost("no process can be started")
    assert host.after(lambda: host.dies(1)) == ["refuse ReplicaLost"]
    host.lacks = None
    assert host.connects(attempt(3)) == ["start 2", "epoch 3 to 2"]


def test_no_conduit_is_served_under_a_fence_that_is_not_written_down(host: Host) -> None:
    host.lacks = StorageUnavailable("the disk is full")
    assert host.connects(attempt(2)) == ["refuse StorageUnavailable"]
    with pytest.raises(StorageUnavailable):
        host.placement.promotes(1, attempt(2))
    host.lacks = None
    assert host.connects(attempt(2)) == ["kill 1"]
    assert host.kept[HERE] == attempt(2).fence


def test_a_start_of_the_query_waits_until_older_processes_are_dead(host: Host) -> None:
    host.connects(attempt(2))
    said: list[str] = []

    def begins() -> None:
        host.placement.begins(2, lambda: said.append("done"))

    assert host.after(begins) == ["refuse Fenced", "kill 1"]
    assert said == []
    assert host.connects(attempt(3)) == ["refuse Fenced"], "its start is over"
    host.connects(attempt(1, generation=2))
    assert host.after(lambda: host.dies(1)) == ["start 2", "epoch 3 to 2"]
    assert said == ["done"]
    assert host.after(begins) == [] and said == ["done", "done"], "no process is older"


def test_a_hanging_process_of_an_older_start_is_killed_at_once(host: Host) -> None:
    assert host.connects(attempt(1, replacement=1)) == ["dump and kill 1"]
    assert host.after(lambda: host.placement.begins(2, lambda: None)) == ["refuse Fenced", "kill 1"]
    assert host.placement.killed_for(1) is KillReason.HANG


def test_a_standby_is_promoted_under_a_newer_fence_and_as_the_one_that_serves() -> None:
    host = Host()
    follows = replace(attempt(1), standby=True)
    host.connects(follows)
    promoted = replace(follows, standby=False)
    assert not host.placement.promotes(1, promoted), "its fence is its primary's"
    promoted = replace(promoted, fence=Fence.of(1, 1, 1))
    assert not host.placement.promotes(7, promoted), "it serves no instance"
    assert host.placement.promotes(1, promoted)
    assert [served.said for served in host.placement.serving] == [promoted]
    assert host.connects(attempt(1, replacement=1)) == ["refuse Fenced"]
