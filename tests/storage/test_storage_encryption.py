"""Files that are encrypted at rest: content of every size comes back, and what was altered, cut, moved or encrypted
with another key does not open."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyarrow import fs

from clonos.errors import ConfigurationError, LogCorrupt, SnapshotCorrupt
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import NO_KEYS, ArchiveKey, ArchiveKeys, read_keys
from clonos.storage.encrypted_file import (
    CHUNK,
    HEADER_BYTES,
    DoesNotOpen,
    content_size,
    decrypted,
    encrypted,
    key_id,
)
from clonos.storage.encrypted_medium import SUFFIX, Encryption
from clonos.storage.folder import Folder
from clonos.storage.snapshots import SnapshotStore

GOLDEN = Path(__file__).parent.parent / "golden" / "encrypted_file_v1.bin"
KEY = ArchiveKey(bytes(range(32)))
OTHER = ArchiveKey(bytes(32))
SIZES = (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 17)


def closed(content: bytes, name: str = "a/name", key: ArchiveKey = KEY) -> bytes:
    return b"".join(encrypted([content], key, name))


def opened(raw: bytes, name: str = "a/name", key: ArchiveKey = KEY) -> bytes:
    assert key_id(raw[:HEADER_BYTES]) == key.id
    return b"".join(decrypted(raw[:HEADER_BYTES], [raw[HEADER_BYTES:]], key, name))


@pytest.mark.parametrize("size", SIZES)
def test_content_of_every_size_comes_back(size: int) -> None:
    content = Random(size).randbytes(size)
    raw = closed(content)
    assert opened(raw) == content
    assert content_size(len(raw)) == size
    assert raw != closed(content), "each file has a key of its own"
    pieces = [content[at : at + 1000] for at in range(0, size, 1000)]
    assert opened(b"".join(encrypted(pieces, KEY, "a/name"))) == content


def test_a_file_of_the_first_version_is_read() -> None:
    """A difference here means a new version, not a new golden file."""
    assert opened(GOLDEN.read_bytes(), "golden") == b"what the archive has" * 5000


def test_what_was_changed_does_not_open() -> None:
    raw, rng = closed(Random(1).randbytes(2 * CHUNK + 100)), Random(2)
    for _ in range(100):
        at = rng.randrange(len(raw))
        damaged = bytearray(raw)
        damaged[at] ^= rng.randrange(1, 256)
        for wrong in (bytes(damaged), raw[:at]):
            with pytest.raises((DoesNotOpen, AssertionError)):
                opened(wrong)
    body = raw[HEADER_BYTES:]
    chunks = [body[at : at + CHUNK + 16] for at in range(0, len(body), CHUNK + 16)]
    for order in ((1, 0, 2), (0, 1), (0, 2), (0, 1, 2, 2), ()):
        with pytest.raises(DoesNotOpen):
            opened(raw[:HEADER_BYTES] + b"".join(chunks[at] for at in order))
    with pytest.raises(DoesNotOpen):
        opened(raw, "another/name")


def test_one_key_of_another_file_does_not_help() -> None:
    with pytest.raises(DoesNotOpen):
        list(decrypted(closed(b"x")[:HEADER_BYTES], [closed(b"x")[HEADER_BYTES:]], KEY, "a/name"))


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
        return SnapshotStore(str(tmp_path / "root"), fence=Fence.of(fence), pending=pending, keys=keys)

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
    Archive(
        checkpoint, keys=ArchiveKeys((OTHER,))
    ).begin_writing()  # what is from before cannot be read, and goes
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
