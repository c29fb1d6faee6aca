"""Where in the archive of a query some bytes are: in its files as they are, in what these say when they are read, and
in the files of its states, those inside manifests and the tables that are brought back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.protocol.ids import Origin
from clonos.storage.archive import Archive
from clonos.storage.keyed_state import KeyedState


def places_of(checkpoint: Path, *wanted: bytes) -> list[str]:
    root = checkpoint / "clonos" / "archive"
    found: list[str] = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and name.parts[0] != "programs" and _has(path.read_bytes(), wanted):
            found.append(f"the file {name}")
    query = ArchivedQuery(str(checkpoint))
    for instance in query.instances():
        found += _in_segments(query.archive, instance.origin, wanted)
        found += places_in_states(instance, *wanted)
    return found


def _in_segments(archive: Archive, origin: Origin, wanted: Iterable[bytes]) -> Iterator[str]:
    files = archive.segments(origin)
    for segment in files.read(files.names()):
        if _has(b"|".join((segment.log, *segment.blocks, segment.lineage or b"")), wanted):
            yield f"epoch {segment.epoch} of {origin}"


def places_in_states(instance: ArchivedInstance, *wanted: bytes) -> Iterator[str]:
    for name in instance.states.manifests():
        manifest = instance.states.named(str(name))
        assert manifest is not None
        if _has(manifest.meta, wanted):
            yield f"what {name} of {instance} says"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state")
            instance.states.restore(manifest, str(path))
            for file in sorted(path.iterdir()):
                if _has(file.read_bytes(), wanted):
                    yield f"{file.name} of {name} of {instance}"
            state = KeyedState(str(path))
            if any(_has(key + b"|" + value, wanted) for key, value in state.database.cursor(b"", None)):
                yield f"the state {name} of {instance}"
            tables = state.database.raw.live_files()
            if any(_has(each[end], wanted) for each in tables for end in ("start_key", "end_key")):
                yield f"a table of {name} of {instance}"
            state.close()


def _has(data: bytes, wanted: Iterable[bytes]) -> bool:
    return any(each in data for each in wanted)
