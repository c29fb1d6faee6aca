"""The format of manifests, the names in checkpoint storage, and the locations that it may have."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from clonos.errors import ConfigurationError, SnapshotCorrupt
from clonos.protocol.fence import Fence
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.folder import local_root, resolve
from clonos.storage.manifest import Manifest, SnapshotFile, stored_fence, stored_name


def golden_manifest() -> Manifest:
    content = b"MANIFEST-000005\n"
    table = hashlib.sha256(b"table").digest()
    return Manifest(
        epoch=3,
        sequence=7,
        final=True,
        fence=Fence.of(5, 0, 2),
        meta=b"frontier",
        files=(
            SnapshotFile("000008.sst", 5, table, stored_name(5, table, 1), None, (11, 1700000000000000000)),
            SnapshotFile("CURRENT", len(content), hashlib.sha256(content).digest(), "", content, None),
        ),
    )


def test_the_format_of_manifests_is_what_was_written_before(root: Path) -> None:
    expected = (root / "tests" / "golden" / "store_manifest_v2.bin").read_bytes()
    assert golden_manifest().to_bytes() == expected
    assert Manifest.from_bytes(expected, "here") == golden_manifest()
    assert str(golden_manifest().name) == (
        "00000000000000000003-00000000000000050000000000000002-00000000000000000007-final.manifest"
    )
    assert golden_manifest().files[0].stored == hashlib.sha256(b"table").hexdigest() + "-5-" + Fence(1).text


def test_manifests_of_narrow_fences_are_read(root: Path) -> None:
    """Of version 1: the fence means what it meant, and the file keeps its name."""
    found = Manifest.from_bytes((root / "tests" / "golden" / "store_manifest_v1.bin").read_bytes(), "here")
    assert replace(found, narrow=False, files=golden_manifest().files) == golden_manifest()
    assert str(found.name) == "00000000000000000003-0005000000000002-00000000000000000007-final.manifest"
    assert SnapshotName.parse(str(found.name)) == found.name == golden_manifest().name
    assert found.files[0].stored.endswith("-5-0000000000000001")
    assert stored_fence(found.files[0].stored) == 1


@given(st.data())
def test_no_altered_or_cut_manifest_is_read(data: st.DataObject) -> None:
    whole = golden_manifest().to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    altered = bytearray(whole)
    altered[at] ^= 1 << data.draw(st.integers(0, 7))
    for bad in (bytes(altered), whole[:at], whole + b"x"):
        with pytest.raises(SnapshotCorrupt, match="here"):
            Manifest.from_bytes(bad, "here")


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../evil"},
        {"path": "a/b"},
        {"path": ".hidden"},
        {"path": ""},
        {"stored": "../../etc/passwd"},
        {"size": "5"},
        {"sha256": b"short"},
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(change: dict[str, Any]) -> None:
    manifest = golden_manifest()
    bad = replace(manifest, files=(replace(manifest.files[0], **change),))
    with pytest.raises(SnapshotCorrupt, match="malformed"):
        Manifest.from_bytes(bad.to_bytes(), "here")
    with pytest.raises(SnapshotCorrupt, match="malformed"):
        Manifest.from_bytes(replace(manifest, files=manifest.files * 2).to_bytes(), "here")
    with pytest.raises(SnapshotCorrupt, match="malformed"):
        Manifest.from_bytes(replace(manifest, epoch=-1).to_bytes(), "here")


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_names_of_narrow_fences_keep_their_text_and_order(one: int, other: int) -> None:
    texts = [f"{3:020d}-{fence:016x}-{4:020d}-mid.manifest" for fence in (one, other)]
    names = [SnapshotName.parse(text) for text in texts]
    assert [str(name) for name in names] == texts
    assert (names[0] < names[1]) == (one < other)  # type: ignore[operator]
    assert stored_fence(f"{bytes(32).hex()}-5-{one:016x}") == names[0].fence  # type: ignore[union-attr]


@given(st.integers(0, 10**20 - 1), st.integers(0, 2**128 - 1), st.integers(0, 10**20 - 1), st.booleans())
def test_names_parse_and_sort_as_snapshots_do(epoch: int, fence: int, sequence: int, final: bool) -> None:
    name = SnapshotName(epoch, fence, sequence, final)
    assert SnapshotName.parse(str(name)) == name
    assert stored_fence(stored_name(epoch, bytes(32), fence)) == fence
    assert SnapshotName.parse(str(name) + "x") is None
    other = SnapshotName(epoch, fence, max(sequence - 1, 0), final)
    assert (str(other) < str(name)) == (other < name)


# Locations


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a:b/c", "/a:b/c"),
        ("file:/a/b%20c", "/a/b%20c"),
        ("file:///a/b c", "/a/b c"),
        ("FILE:/a#b?c/", "/a#b?c"),
        ("/a/../b//./c/", "/b/c"),
        ("file:///", "/"),
    ],
)
def test_locations_of_this_host(location: str, path: str) -> None:
    filesystem, found = resolve(location)
    assert (local_root(filesystem, found), found) == (path, path)


def test_other_locations() -> None:
    filesystem, path = resolve("mock:///a/b")
    assert filesystem.type_name == "mock"
    assert local_root(filesystem, path) is None
    assert resolve("mock:///a b/c%20d?e#f/")[1].endswith("a b/c%20d?e#f"), "as Hadoop, which escapes nothing"
    for bad in ("", "nosuch://a/b", "viewfs://nowhere/a", "file:a/b"):
        with pytest.raises(ConfigurationError):
            resolve(bad)
    with pytest.raises(ConfigurationError, match=r"names a host.*Use file:///a/b"):
        resolve("file://localhost/a/b")
