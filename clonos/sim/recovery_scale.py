"""Virtual clusters: what markers and dependency vectors come to beside the rows, far beyond what one machine can run.

The clusters are those of `clonos.sim.scale`: layers, of which every instance feeds all of the next. A bundle's rows go
to destinations at random, and what goes to one of them is one message. Nothing is fitted: vectors have the bytes that
the codec makes, and checkpoints are forced by the policy that queries run with, in a random execution.
"""

from __future__ import annotations

from collections import deque
from random import Random

from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.communication_induced.dependency_vector import DependencyVector
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.communication_induced.instance_numbering import InstanceNumbering
from clonos.protocol.recovery.policy import Checkpoint
from clonos.sim.models.cyclic_checkpoints import message
from clonos.sim.scale import Cluster


def messages_per_bundle(cluster: Cluster) -> float:
    """Destinations that a bundle has rows for, on average."""
    return cluster.parallelism * (1 - (1 - 1 / cluster.parallelism) ** cluster.bundle)


def messages_with_markers(cluster: Cluster, interval: float) -> float:
    """Messages between operators with a round of checkpoints each `interval` seconds, over those without."""
    of_rows = cluster.bundles_per_second * messages_per_bundle(cluster)
    return 1 + cluster.parallelism / interval / of_rows


def vector_bytes_per_row(cluster: Cluster, checkpoints: int = 100) -> float:
    """That ride along, where each instance has taken so many checkpoints in the epoch."""
    everyone = (1 << cluster.instances) - 1
    vector = DependencyVector(checkpoints, [checkpoints] * cluster.instances, everyone, everyone)
    return len(vector.to_bytes()) * messages_per_bundle(cluster) / cluster.bundle


def forced_per_own(cluster: Cluster, interval: float, *, rounds: int = 200, seed: int = 0) -> float:
    """Checkpoints that rows force, for each that an instance takes by its interval in seconds. In each of so many
    rounds every instance takes one bundle, if one is there, in an order of its own; the first layer always has one."""
    rng = Random(f"{seed}/{cluster}/{interval}")
    width, count = cluster.parallelism, cluster.instances
    policies = [ForcedCheckpoints(0, _numbering(cluster, number)) for number in range(count)]
    arrived: list[deque[bytes]] = [deque() for _ in range(count)]
    own = forced = 0
    chance = 1 / (interval * cluster.bundles_per_second)
    for _ in range(rounds):
        for number in rng.sample(range(count), count):
            policy, waiting = policies[number], arrived[number]
            if rng.random() < chance:
                policy.take_checkpoint()
                own += 1
            if number >= width and not waiting:
                continue
            vectors = [waiting.popleft() for _ in range(min(len(waiting), cluster.bundle))]
            for decision in policy.arrive(Bundle([], [], [], vectors)):
                if isinstance(decision, Checkpoint):
                    policy.take_checkpoint()
                    forced += 1
            if number < count - width:
                targets = sorted({rng.randrange(width) for _ in range(cluster.bundle)})
                for target, vector in policy.send(message(targets)).deltas.items():
                    arrived[(number // width + 1) * width + target].append(vector)
    return forced / own if own else 0.0


def _numbering(cluster: Cluster, number: int) -> InstanceNumbering:
    next_layer = (number // cluster.parallelism + 1) * cluster.parallelism
    readers = range(next_layer, min(next_layer + cluster.parallelism, cluster.instances))
    return InstanceNumbering(number, cluster.instances, tuple(readers))
