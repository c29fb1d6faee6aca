"""Runs of the simulator in several processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def process_pool(processes: int | None) -> ProcessPoolExecutor:
    """A pool of processes that have nothing of this one: None for as many as there are processors.

    A plain fork also has what the caller's threads and libraries hold. What a Kafka client left to the garbage
    collector, say, is destroyed again in the fork, whose threads are gone, and that ends the process.
    """
    return ProcessPoolExecutor(processes, mp_context=get_context("forkserver"))
