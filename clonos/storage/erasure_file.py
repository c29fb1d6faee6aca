"""What is being erased from an archive, as it is written down before anything is (`protocol.archive.erasure`).

A sealed file (`sealed`) of version 2. Its body:

    operator, salt, digest (hexadecimal), fence, states
    instances   each: node, instance, cleaned_upto or null, ends, cleans, drops, epochs

States are said by the names of their manifests. In version 1 the body has `parts`: node, instance and epoch of each
epoch that is erased; states were as they should be when it was written.
"""

from __future__ import annotations

from typing import Any, Final

from clonos.errors import CheckpointMismatch
from clonos.protocol.archive.erasure import ErasurePlan, InstanceErasure
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.sealed import sealed, unsealed_of

VERSION: Final = 2
_HINT: Final = "Remove it, and run `clonos archive forget` again with the key that was being erased"


def erasure_bytes(plan: ErasurePlan) -> bytes:
    """The content of the file."""
    body = {
        "operator": plan.operator,
        "salt": plan.salt.hex(),
        "digest": plan.digest.hex(),
        "fence": Fence(plan.fence).text,
        "states": plan.states,
        "instances": [
            {
                "node": each.origin.node,
                "instance": each.origin.instance,
                "cleaned_upto": each.cleaned_upto,
                "ends": list(each.ends),
                "cleans": list(map(str, each.cleans)),
                "drops": list(map(str, each.drops)),
                "epochs": list(each.epochs),
            }
            for each in plan.instances
        ],
    }
    return sealed(body, VERSION)


def erasure_of(raw: bytes, where: str) -> ErasurePlan:
    """What the file says. Raises CheckpointMismatch."""
    version, body = unsealed_of(raw, where, VERSION, _HINT)
    try:
        return _first_version(body) if version == 1 else _read(body)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointMismatch(f"{where} is malformed: {error!r}", hint=_HINT) from error


def _read(body: dict[str, Any]) -> ErasurePlan:
    return ErasurePlan(
        tuple(_instance(each) for each in body["instances"]),
        body["operator"],
        bytes.fromhex(body["salt"]),
        bytes.fromhex(body["digest"]),
        Fence.parse(body["fence"]),
        body["states"],
    )


def _instance(said: dict[str, Any]) -> InstanceErasure:
    upto = said["cleaned_upto"]
    return InstanceErasure(
        Origin.of(said["node"], said["instance"]),
        None if upto is None else Epoch(upto),
        tuple(Epoch(each) for each in said["ends"]),
        tuple(_name(each) for each in said["cleans"]),
        tuple(_name(each) for each in said["drops"]),
        tuple(Epoch(each) for each in said["epochs"]),
    )


def _name(text: str) -> SnapshotName:
    found = SnapshotName.parse(text)
    if found is None:
        raise ValueError(f"{text!r} is no name of a state")
    return found


def _first_version(body: dict[str, Any]) -> ErasurePlan:
    epochs: dict[Origin, list[Epoch]] = {}
    for node, instance, epoch in body["parts"]:
        epochs.setdefault(Origin.of(node, instance), []).append(Epoch(epoch))
    return ErasurePlan(tuple(InstanceErasure(origin, epochs=tuple(each)) for origin, each in epochs.items()))
