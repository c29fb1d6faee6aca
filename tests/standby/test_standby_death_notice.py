"""Deaths are told before the kernel has cleared the process away."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context

import pytest
from standby_conduit import Watched

from clonos_standby.server.death_notice import DeathNotice
from clonos_standby.server.event_loop import Loop
from clonos_standby.server.lifeline import Lifelines


class Forked:
    """A child that holds a lifeline and, where wanted, much memory, until it is killed. Its socket is in `line`."""

    def __init__(self, hold: Callable[[], None], megabytes: int = 0) -> None:
        self.line, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                hold()
                memory = bytearray(megabytes << 20)
                for page in range(0, len(memory), 4096):
                    memory[page] = 1
                theirs.send(b"+")
                signal.pause()
            finally:
                os._exit(1)
        theirs.close()
        assert self.line.recv(1) == b"+"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        os.waitpid(self.pid, 0)
        self.line.close()


@pytest.fixture
def lifelines() -> Lifelines:
    made = Lifelines.if_possible(3)
    if made is None:
        pytest.skip("this kernel has no robust mutexes")
    return made


def test_who_waits_for_a_lifeline_hears_of_the_death_and_another_may_have_it_then(
    lifelines: Lifelines,
) -> None:
    number = lifelines.take()
    assert number is not None
    for _ in range(3):
        child = Forked(lambda: lifelines.hold(number))
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(lifelines.wait, number)
            assert not wait([waiting], 0.05).done
            child.kill()
            assert waiting.result()
        child.reap()
    assert lifelines.wait(number) is False, "no process holds it"


def test_a_lifeline_whose_holder_died_unheard_can_be_held_again(lifelines: Lifelines) -> None:
    for _ in range(2):
        child = Forked(lambda: lifelines.hold(0))
        child.kill()
        child.reap()
    assert lifelines.wait(0) is True


def test_lifelines_are_taken_once_and_end(lifelines: Lifelines) -> None:
    taken = [lifelines.take() for _ in range(4)]
    assert sorted(taken[:3]) == [0, 1, 2] and taken[3] is None  # type: ignore[type-var]
    lifelines.give_back(1)
    assert lifelines.take() == 1


class Notices:
    """A loop with a watcher, and what happened in it, in order."""

    def __init__(self, lifelines: Lifelines) -> None:
        self.loop = Loop()
        self.heard: list[object] = []
        self.living: list[tuple[int, int]] = []
        self.notice = DeathNotice(self.loop, lifelines, self.heard.append, lambda: self.living)

    def watch(self, child: Forked) -> None:
        def ended(_events: int) -> None:
            self.heard.append("closed")
            self.loop.forget(child.line.fileno())

        self.loop.watch(child.line.fileno(), ended)

    def run_until(self, wanted: Callable[[], bool]) -> None:
        end = time.monotonic() + 30

        def look() -> None:
            if wanted():
                self.loop.stop()
            else:
                assert time.monotonic() < end, self.heard
                self.loop.later(0.005, look)

        look()
        self.loop.run()
        self.loop._stopped = False


@contextmanager
def noticing() -> Iterator[Notices]:
    lifelines = Lifelines.if_possible(3)
    assert lifelines is not None
    made = Notices(lifelines)
    yield made
    made.notice.close()
    made.loop.close()


def watch_five_die() -> None:
    orders = []
    with noticing() as notices:
        # Both are quick: on a busy machine the one that hears of them may be late for both.
        for _ in range(5):
            child = Forked(lambda: notices.notice.enroll(0), megabytes=300)
            notices.heard.clear()
            notices.watch(child)
            child.kill()
            notices.run_until(lambda: len(notices.heard) == 2)
            child.reap()
            assert set(notices.heard) == {child.pid, "closed"}
            orders.append(notices.heard.index("closed"))
    assert 1 in orders, orders


def lose_the_watcher() -> None:
    with noticing() as notices:
        lost = notices.notice.pid
        child = Forked(lambda: notices.notice.enroll(2))
        notices.living = [(2, child.pid)]
        os.kill(lost, signal.SIGKILL)
        notices.run_until(lambda: notices.notice.pid != lost)
        child.kill()
        notices.run_until(lambda: child.pid in notices.heard)
        child.reap()


@pytest.mark.usefixtures("lifelines")
@pytest.mark.parametrize("work", [watch_five_die, lose_the_watcher])
def test_a_death_is_told_before_memory_and_sockets_are_given_back_by_a_watcher_that_is_replaced(
    work: Callable[[], None],
) -> None:
    """In a process like the server, with one thread: the threads of gRPC, which other tests have started in this one,
    end a process that is forked."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as server:
        server.submit(work).result()


def test_the_watcher_ends_with_its_server(lifelines: Lifelines) -> None:
    def serve() -> None:
        notice = DeathNotice(Loop(), lifelines, lambda _pid: None, list)
        theirs.send(str(notice.pid).encode())

    ours, theirs = socket.socketpair()
    server = Forked(serve)
    watcher = Watched(int(ours.recv(16)))
    server.kill()
    server.reap()
    assert watcher.gone()
