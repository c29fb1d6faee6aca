"""Files that are encrypted at rest: content of every size comes back, and what was altered, cut, moved or encrypted
with another key does not open."""

from __future__ import annotations

import hashlib
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyarrow import fs

from clonos.errors import ConfigurationError, LogCorrupt, SnapshotCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.erasure import ErasurePlan, InstanceErasure
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import NO_KEYS, ArchiveKey, ArchiveKeys, read_keys
from clonos.storage.encrypted_file import (
    CHUNK,
    HEADER_BYTES,
    MAGIC,
    DoesNotOpen,
    FilePlace,
    content_size,
    decrypted,
    encrypted,
    key_id,
)
from clonos.storage.encrypted_medium import SUFFIX, Encryption
from clonos.storage.folder import Folder
from clonos.storage.keyed_state import KeyedState
from clonos.storage.sealed import sealed
from clonos.storage.snapshots import SnapshotStore

PROGRAM = hashlib.sha256(b"a program").hexdigest()
GOLDEN = Path(__file__).parent.parent / "golden" / "encrypted_file_v2.bin"
FIRST_GOLDEN = GOLDEN.with_name("encrypted_file_v1.bin")
PLACE = FilePlace("a/name", "state/2/0", "0" * 32)
KEY = ArchiveKey(bytes(range(32)))
OTHER = ArchiveKey(bytes(32))
SIZES = (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 17)


def closed(content: bytes, place: FilePlace = PLACE, key: ArchiveKey = KEY) -> bytes:
    return b"".join(encrypted([content], key, place))


def opened(raw: bytes, place: FilePlace = PLACE, key: ArchiveKey = KEY) -> bytes:
    assert key_id(raw[:HEADER_BYTES]) == key.id
    return b"".join(decrypted(raw[:HEADER_BYTES], [raw[HEADER_BYTES:]], key, place))


def of_version(version: int, raw: bytes) -> bytes:
    """The same file, said to be of another version."""
    return raw[: len(MAGIC)] + bytes([version]) + raw[len(MAGIC) + 1 :]


@pytest.mark.parametrize("size", SIZES)
def test_content_of_every_size_comes_back(size: int) -> None:
    content = Random(size).randbytes(size)
    raw = closed(content)
    assert opened(raw) == content
    assert content_size(len(raw)) == size
    assert raw != closed(content), "each file has a key of its own"
    pieces = [content[at : at + 1000] for at in range(0, size, 1000)]
    assert opened(b"".join(encrypted(pieces, KEY, PLACE))) == content


def test_files_of_all_versions_are_read() -> None:
    """A difference here means a new version, not a new golden file."""
    content = b"what the archive has" * 5000
    assert opened(FIRST_GOLDEN.read_bytes(), FilePlace("golden", "wherever", "it is")) == content
    assert opened(GOLDEN.read_bytes(), FilePlace("golden", "state/2/0", "0" * 32)) == content


def test_a_file_does_not_open_as_one_of_another_version() -> None:
    first, second = FIRST_GOLDEN.read_bytes(), GOLDEN.read_bytes()
    place = FilePlace("golden", "state/2/0", "0" * 32)
    for raw in (of_version(2, first), of_version(1, second), of_version(1, closed(b"", FilePlace("golden")))):
        for where in (place, FilePlace("golden")):
            with pytest.raises(DoesNotOpen, match="is damaged"):
                opened(raw, where)
    for version in (0, 3, 255):
        with pytest.raises(DoesNotOpen, match=f"has version {version}; this library reads 1, 2"):
            opened(of_version(version, second), place)


def test_a_file_is_bound_to_its_place() -> None:
    """To its name, its folder and its query, and no two of them are told alike."""
    parts = ("", "a", "b", "a/b", "a/", "/b", "0")
    places = [FilePlace(name, folder, query) for name in parts for folder in parts for query in parts]
    assert len({place.said(2) for place in places}) == len(places)
    assert not {place.said(2) for place in places} & {place.said(1) for place in places}
    for other in (
        replace(PLACE, name="another/name"),
        replace(PLACE, folder="state/2/1"),
        replace(PLACE, query="1" * 32),
        FilePlace("2/0/a/name", "state", PLACE.query),
    ):
        with pytest.raises(DoesNotOpen, match="not the file that belongs there"):
            opened(closed(b"content"), other)


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_changed_does_not_open(version: int) -> None:
    golden = (FIRST_GOLDEN, GOLDEN)[version - 1].read_bytes()
    place = FilePlace("golden", "state/2/0", "0" * 32)
    raw, rng = closed(Random(1).randbytes(2 * CHUNK + 100), place), Random(2)
    for _ in range(100):
        at = rng.randrange(len(raw))
        damaged = bytearray(raw)
        damaged[at] ^= rng.randrange(1, 256)
        in_golden = rng.randrange(len(golden))
        damaged_golden = bytearray(golden)
        damaged_golden[in_golden] ^= rng.randrange(1, 256)
        for wrong in (bytes(damaged), raw[:at], bytes(damaged_golden), golden[:in_golden]):
            with pytest.raises((DoesNotOpen, AssertionError)):
                opened(wrong, place)
    body = raw[HEADER_BYTES:]
    chunks = [body[at : at + CHUNK + 16] for at in range(0, len(body), CHUNK + 16)]
    for order in ((1, 0, 2), (0, 1), (0, 2), (0, 1, 2, 2), ()):
        with pytest.raises(DoesNotOpen):
            opened(raw[:HEADER_BYTES] + b"".join(chunks[at] for at in order), place)


def test_one_key_of_another_file_does_not_help() -> None:
    with pytest.raises(DoesNotOpen):
        list(decrypted(closed(b"x")[:HEADER_BYTES], [closed(b"x")[HEADER_BYTES:]], KEY, PLACE))


@pytest.fixture(params=["this host", "PyArrow"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[fs.FileSystem, str]]:
    if request.param == "this host":
        yield fs.LocalFileSystem(), str(tmp_path / "root")
    else:
        memory: fs.FileSystem = fs._MockFileSystem()
        memory.create_dir("bucket")
        yield fs.SubTreeFileSystem("bucket", memory), "root"


def folder(storage: tuple[fs.FileSystem, str], *keys: ArchiveKey) -> Folder:
    return Folder(*storage, tag="t", encryption=Encryption(ArchiveKeys(keys), LogCorrupt))


def test_a_folder_with_keys_is_a_folder(storage: tuple[fs.FileSystem, str], tmp_path: Path) -> None:
    here, plain = folder(storage, KEY), Folder(*storage, tag="p")
    content = Random(3).randbytes(5 * CHUNK + 1)
    (tmp_path / "large").write_bytes(content)
    here.put(str(tmp_path / "large"), "d/large")
    here.write("d/small", b"small")
    assert here.create("d/new", b"")
    plain.write("d/before", b"not encrypted")
    assert here.sizes("d") == {"large": len(content), "small": 5, "new": 0, "before": 13}
    assert (here.read("d/large"), here.read("d/small"), here.read("d/new")) == (content, b"small", b"")
    assert here.read("d/before") == b"not encrypted"
    size, _ = here.fetch("d/large", str(tmp_path / "back"))
    assert (size, (tmp_path / "back").read_bytes()) == (len(content), content)
    assert set(plain.sizes("d")) == {"before", *(f"{name}{SUFFIX}" for name in ("large", "small", "new"))}
    assert content[:64] not in plain.read(f"d/large{SUFFIX}")
    assert set(here.stored_alike("d")) == {"large", "small", "new"}
    assert folder(storage).stored_alike("d") == here.sizes("d")
    here.write("d/before", b"and now it is")
    assert here.read("d/before") == b"and now it is"
    assert "before" not in plain.sizes("d")
    for name in ("large", "small", "new", "before"):
        here.delete(f"d/{name}")
    assert here.sizes("d") == plain.sizes("d") == {}
    with pytest.raises(FileNotFoundError):
        here.read("d/small")
    with pytest.raises(FileNotFoundError):
        here.fetch("d/small", str(tmp_path / "none"))


def test_other_keys_read_what_they_have_written(storage: tuple[fs.FileSystem, str]) -> None:
    folder(storage, OTHER).write("before", b"of the old key")
    folder(storage, KEY, OTHER).write("after", b"of the new one")
    both = folder(storage, KEY, OTHER)
    assert (both.read("before"), both.read("after")) == (b"of the old key", b"of the new one")
    new = folder(storage, KEY)
    assert new.read("after") == b"of the new one"
    with pytest.raises(LogCorrupt, match=f"not given here .{OTHER.id.hex()}"):
        new.read("before")
    with pytest.raises(LogCorrupt, match="CLONOS_ARCHIVE_KEY_FILE"):
        folder(storage).read("after")


def test_snapshots_are_encrypted_whole(tmp_path: Path) -> None:
    class State:
        def checkpoint(self, directory: str) -> None:
            os.makedirs(directory)
            Path(directory, "1.sst").write_bytes(b"a value of the state" * 10_000)
            Path(directory, "CURRENT").write_bytes(b"a value of the state")

        def increment(self) -> None:
            return None

    def store(keys: ArchiveKeys, fence: int = 0) -> SnapshotStore:
        pending = str(tmp_path / "pending") if fence else None
        encryption = Encryption(keys, SnapshotCorrupt)
        return SnapshotStore(
            str(tmp_path / "root"), fence=Fence.of(fence), pending=pending, encryption=encryption
        )

    keys = ArchiveKeys((KEY,))
    for fence in (1, 2):  # the second has the file already, as it is encrypted
        own = store(keys, fence)
        for known in map(own.readable, own.manifests()):
            assert known is not None
            own.share(known)
        own.store(own.begin(State(), b"meta", epoch=Epoch(fence), sequence=fence, final=True))
    assert len(os.listdir(tmp_path / "root" / "files")) == 1
    for at, name in enumerate(store(keys).manifests()):
        found = store(keys).named(str(name))
        assert found is not None
        store(keys).restore(found, str(tmp_path / f"state-{at}"))
        assert (tmp_path / f"state-{at}" / "1.sst").read_bytes() == b"a value of the state" * 10_000
        with pytest.raises(SnapshotCorrupt, match="is encrypted with a key"):
            store(NO_KEYS).restore(found, str(tmp_path / "no"))
        with pytest.raises(SnapshotCorrupt, match="is encrypted with a key"):
            store(NO_KEYS).named(str(name))
    for path in (tmp_path / "root").rglob("*"):
        assert path.is_dir() or b"a value of the state" not in path.read_bytes()


def test_an_archive_that_is_encrypted_stays_so(tmp_path: Path) -> None:
    checkpoint = str(tmp_path)
    Archive(checkpoint).begin_writing()
    Archive(checkpoint).check_keys()
    Archive(checkpoint, keys=ArchiveKeys((KEY,))).begin_writing()
    # What is from before cannot be read, and goes
    Archive(checkpoint, keys=ArchiveKeys((OTHER,))).begin_writing()
    Archive(checkpoint, keys=ArchiveKeys((OTHER, KEY))).check_keys()
    Archive(checkpoint, keys=ArchiveKeys((KEY,))).check_keys()
    with pytest.raises(ConfigurationError, match=r"Set spark\.clonos\.archive\.keyFile"):
        Archive(checkpoint).begin_writing()
    for keys in (NO_KEYS, ArchiveKeys((ArchiveKey(b"k" * 32),))):
        with pytest.raises(ConfigurationError, match=f"not given here .{KEY.id.hex()}"):
            Archive(checkpoint, keys=keys).check_keys()
    archive = tmp_path / "clonos" / "archive"
    archive.rename(tmp_path / "clonos" / "archive.before")  # as the hint says
    Archive(checkpoint).begin_writing()
    assert Archive(checkpoint).states(Origin.of(2, 0), fence=LOWEST_FENCE).manifests() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no key"),
        ("# only a comment\n\n", "has no key"),
        ("c2hvcnQ=\n", "line 1 is not 32 bytes in base64"),
        (f"{b64encode(bytes(32)).decode()}\nnot base64!\n", "line 2 is not 32 bytes in base64"),
        ("schlüssel\n", "is no text of base64"),
    ],
)
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigurationError, match=said) as raised:
        read_keys(str(tmp_path / "keys"))
    assert not text.strip() or text.split()[-1] not in str(raised.value)


def test_the_first_key_writes_and_all_read(tmp_path: Path) -> None:
    lines = ["# the new one", b64encode(KEY.secret).decode(), "", b64encode(OTHER.secret).decode()]
    (tmp_path / "keys").write_text("\n".join(lines))
    keys = read_keys(str(tmp_path / "keys"))
    assert (keys.writing, keys.find(OTHER.id), keys.find(b"12345678")) == (KEY, OTHER, None)
    assert read_keys("") == NO_KEYS
    assert "secret" not in repr(keys)
    with pytest.raises(ConfigurationError, match="cannot be read here: No such file"):
        read_keys(str(tmp_path / "none"))


# ---------------------------------------------------------------- which key writes, and what belongs where


ORIGIN, SIBLING = Origin.of(2, 0), Origin.of(2, 1)
THIRD = ArchiveKey(b"k" * 32)


def segment(epoch: int = 1, origin: Origin = ORIGIN) -> ArchiveSegment:
    return ArchiveSegment(
        origin=origin,
        epoch=Epoch(epoch),
        fence=Fence.of(1),
        number=0,
        written_at=1,
        realtime=False,
        program="ab" * 32,
        epoch_start=LogOffset(0),
        log_start=LogOffset(0),
        log=b"a secret",
    )


def key_ids(tmp_path: Path) -> set[str]:
    """Of the keys that files of the archive are encrypted with, but those that never are; "" of one that is not."""
    found = set()
    for path in (tmp_path / "clonos" / "archive").rglob("*"):
        if path.is_file() and path.parent.name not in ("keys", "cleaned"):
            is_encrypted = path.name.endswith(SUFFIX)
            found.add(key_id(path.read_bytes()[:HEADER_BYTES]).hex() if is_encrypted else "")
    return found


class OneFile:
    """State of one file, of the same content for all."""

    def checkpoint(self, directory: str) -> None:
        os.makedirs(directory)
        Path(directory, "1.sst").write_bytes(b"a value of the state" * 100)

    def increment(self) -> None:
        return None


def erasure(origin: Origin) -> ErasurePlan:
    return ErasurePlan((InstanceErasure(origin, epochs=(Epoch(1),)),), "count", b"salt", b"digest")


def write_all(archive: Archive, tmp_path: Path, origin: Origin = ORIGIN) -> None:
    """Everything that an archive has."""
    archive.segments(origin).write(segment(origin=origin))
    archive.write_program(PROGRAM, b"a program")
    archive.write_erasure(erasure(origin))
    store = archive.states(origin, fence=Fence.of(1), pending=str(tmp_path / "pending"))
    store.store(store.begin(OneFile(), b"meta", epoch=Epoch(1), sequence=1, final=True))


@pytest.mark.parametrize(
    ("taken", "given", "writes"),
    [
        ([], (), ""),
        ([], (KEY,), ""),  # of another query, as a command's environment may have it
        ([KEY], (KEY,), KEY),
        ([KEY], (OTHER, KEY), KEY),
        ([KEY, OTHER], (OTHER, KEY), OTHER),
        ([KEY, OTHER], (KEY, OTHER), KEY),
        ([KEY, OTHER], (THIRD, KEY, OTHER), KEY),
        ([KEY, OTHER], (THIRD, OTHER), OTHER),
    ],
)
def test_all_but_a_start_write_as_the_archive_is(
    tmp_path: Path, taken: list[ArchiveKey], given: tuple[ArchiveKey, ...], writes: ArchiveKey | str
) -> None:
    for key in taken:
        Archive(str(tmp_path), keys=ArchiveKeys((key,))).begin_writing()
    write_all(Archive(str(tmp_path), keys=ArchiveKeys(given)), tmp_path)
    assert key_ids(tmp_path) == {writes if isinstance(writes, str) else writes.id.hex()}
    keys = tmp_path / "clonos" / "archive" / "keys"
    registered = {path.name for path in keys.iterdir()} if taken else set()
    assert registered == {key.id.hex() + SUFFIX for key in taken}
    again = Archive(str(tmp_path), keys=ArchiveKeys(given))
    again.check_keys()
    assert again.erasure() == erasure(ORIGIN) and again.program(PROGRAM) == b"a program"


def test_without_a_key_that_is_in_use_nothing_is_written(tmp_path: Path) -> None:
    Archive(str(tmp_path), keys=ArchiveKeys((KEY,))).begin_writing()
    before = sorted(tmp_path.rglob("*"))
    for given in ((), (OTHER,)):
        with pytest.raises(ConfigurationError, match=f"not given here .{KEY.id.hex()}"):
            write_all(Archive(str(tmp_path), keys=ArchiveKeys(given)), tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == [
        p for p in before if p.is_file()
    ]


def test_an_older_key_can_go_when_what_it_has_encrypted_is_dropped(tmp_path: Path) -> None:
    """Programs are never dropped, and files of states may be shared for ever: a key that is taken into use takes them
    over. Notes are not encrypted."""
    old = Archive(str(tmp_path), keys=ArchiveKeys((KEY,)))
    old.begin_writing()
    old.write_program(PROGRAM, b"a program")
    note = tmp_path / "clonos" / "archive" / "cleaned" / f"{ORIGIN.node}-{ORIGIN.instance}.json"
    note.parent.mkdir(parents=True)
    note.write_bytes(sealed({"upto": [7]}))
    store = old.states(ORIGIN, fence=Fence.of(1), pending=str(tmp_path / "pending"))
    state = KeyedState(str(tmp_path / "state"))
    state.save(b"k", "value" * 100)
    first = store.finish(store.begin(state, b"meta", epoch=Epoch(1), sequence=0, final=True))

    Archive(str(tmp_path), keys=ArchiveKeys((OTHER, KEY))).begin_writing()
    both = Archive(str(tmp_path), keys=ArchiveKeys((OTHER, KEY)))
    store = both.states(ORIGIN, fence=Fence.of(2), pending=str(tmp_path / "pending 2"))
    store.share(first)
    second = store.finish(store.begin(state, b"meta", epoch=Epoch(2), sequence=1, final=True))
    state.close()
    assert both.has_program(PROGRAM)

    new = Archive(str(tmp_path), keys=ArchiveKeys((OTHER,)))
    assert new.program(PROGRAM) == b"a program"
    assert new.cleaned.upto(ORIGIN) == [7]
    new.states(ORIGIN).restore(second, str(tmp_path / "restored"))
    restored = KeyedState(str(tmp_path / "restored"))
    assert restored.load(b"k") == "value" * 100
    restored.close()


def test_files_of_another_instance_or_query_do_not_open(tmp_path: Path) -> None:
    keys = ArchiveKeys((KEY,))
    archive = Archive(str(tmp_path / "one"), keys=keys, query="1" * 32)
    archive.begin_writing()
    for origin in (ORIGIN, SIBLING):
        write_all(archive, tmp_path, origin)
    root = tmp_path / "one" / "clonos" / "archive"
    copy = tmp_path / "two" / "clonos" / "archive"
    shutil.copytree(root, copy)
    for folder in ("state", "segments"):
        (root / folder / "2" / "0").rename(root / "held")
        (root / folder / "2" / "1").rename(root / folder / "2" / "0")
        (root / "held").rename(root / folder / "2" / "1")
    swapped = Archive(str(tmp_path / "one"), keys=keys, query="1" * 32)
    other = Archive(str(tmp_path / "two"), keys=keys, query="2" * 32)
    same = Archive(str(tmp_path / "two"), keys=keys, query="1" * 32)
    for origin in (ORIGIN, SIBLING):
        for wrong in (swapped, other):
            segments, states = wrong.segments(origin), wrong.states(origin)
            with pytest.raises(LogCorrupt, match="not the file that belongs there"):
                list(segments.read(segments.names()))
            (name,) = states.manifests()
            with pytest.raises(SnapshotCorrupt, match="not the file that belongs there"):
                states.named(str(name))
        (name,) = same.states(origin).manifests()
        assert same.states(origin).named(str(name)) is not None
        assert len(list(same.segments(origin).read(same.segments(origin).names()))) == 1
    for read in (other.erasure, lambda: other.program(PROGRAM)):
        with pytest.raises(LogCorrupt, match="not the file that belongs there"):
            read()
