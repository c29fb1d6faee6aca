"""Checkpoint storage in a real object store: whole objects, exclusive claims, answers that are lost, clear errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lossy_proxy import LossyProxy
from s3_server import READER, Keys, S3Server

from clonos.errors import ConfigurationError, StorageUnavailable
from clonos.spark.location import stores_of
from clonos.spark.store_settings import store_settings
from clonos.storage import object_prefix, object_store
from clonos.storage.folder import Folder, resolve
from clonos.storage.object_prefix import ObjectPrefix

pytestmark = pytest.mark.s3


@pytest.fixture(autouse=True)
def _forgetting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test says of stores is its own."""
    monkeypatch.setattr(object_store, "_said", {})
    monkeypatch.setattr(object_store, "_opened", {})
    monkeypatch.setattr(object_prefix, "_probed", set())
    yield


def use(server: S3Server, bucket: str, *, keys: Keys | None = None, endpoint: str = "") -> None:
    keys = keys or Keys(server.options()["access_key_id"], server.options()["secret_access_key"])
    object_store.use(
        {
            f"s3://{bucket}": {
                "endpoint": endpoint or server.endpoint,
                "region": "us-east-1",
                "access_key_id": keys.access_key_id,
                "secret_access_key": keys.secret_access_key,
            }
        }
    )


def folder(location: str, tag: str = "test") -> Folder:
    storage, root = resolve(location)
    return Folder(storage, f"{root}/clonos", tag=tag)


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = s3.fresh_bucket()
    use(s3, name)
    return name


@pytest.mark.parametrize("path", ["/one", "/with blank/ä", "/a%20b", "/x=1/[y]~#?", ""])
def test_files_come_back_under_the_names_that_spark_gives_them(s3: S3Server, bucket: str, path: str) -> None:
    here = folder(f"s3a://{bucket}{path}")
    here.write("lines/7", b"seven")
    here.write("lines/8", b"")
    here.write("query.json", b"{}")
    assert here.sizes("lines") == {"7": 5, "8": 0} and here.sizes("") == {"query.json": 2}
    assert here.read("lines/7") == b"seven" and here.sizes("no") == {}
    keys = {each["path"] for each in s3.store(bucket).list().collect()}
    assert keys == {f"{path}/clonos/{name}".lstrip("/") for name in ("lines/7", "lines/8", "query.json")}
    here.delete("lines/7")
    here.delete("lines/7")
    assert here.sizes("lines") == {"8": 0} and here.local is None
    with pytest.raises(FileNotFoundError):
        here.read("lines/7")
    with pytest.raises(FileNotFoundError):
        here.fetch("lines/7", "/nowhere")


def test_more_names_than_one_answer_holds_are_all_listed(bucket: str) -> None:
    here = folder(f"s3://{bucket}/many")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: here.write(f"pages/{number}", b"x"), range(1100)))
    assert len(here.sizes("pages")) == 1100


def test_a_large_file_goes_there_and_back(bucket: str, tmp_path: Path) -> None:
    here = folder(f"s3://{bucket}/large")
    (tmp_path / "from").write_bytes(content := os.urandom(17 << 20))
    here.put(str(tmp_path / "from"), "files/a")
    assert here.sizes("files") == {"a": len(content)}
    size, _ = here.fetch("files/a", str(tmp_path / "to"))
    assert size == len(content) and (tmp_path / "to").read_bytes() == content
    assert here.link("files/a", str(tmp_path / "link")) is False


def test_of_claims_at_once_one_is_taken(bucket: str) -> None:
    here = folder(f"s3://{bucket}/claims")
    with ThreadPoolExecutor(8) as pool:
        for number in range(2):
            taken = list(pool.map(lambda who: here.create(f"{number}", b"%d" % who), range(8)))  # noqa: B023
            assert taken.count(True) == 1
            assert here.read(f"{number}") == b"%d" % taken.index(True)


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_claim_whose_answer_is_lost_is_ones_own(s3: S3Server, bucket: str, lost: str) -> None:
    """The client sends it again, and the store says that the name is taken."""
    with LossyProxy(s3.port, b"PUT ") as proxy:
        use(s3, bucket, endpoint=f"http://127.0.0.1:{proxy.port}")
        here = folder(f"s3://{bucket}/lossy")
        assert here.create("0", b"so that the store is known")
        proxy.lose(lost)
        assert here.create("1", b"mine")
        assert proxy.due == 0 and not here.create("1", b"another's") and here.read("1") == b"mine"


def test_a_claim_that_was_withdrawn_before_it_was_looked_at_is_anothers(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = folder(f"s3://{bucket}/withdrawn")
    assert here.create("1", b"another's")
    monkeypatch.setattr(ObjectPrefix, "read", _raising(FileNotFoundError("gone")))
    assert not here.create("1", b"mine")


def _raising(error: Exception) -> Callable[..., bytes]:
    def read(*_: object) -> bytes:
        raise error

    return read


def test_a_store_without_conditions_is_refused(s3: S3Server) -> None:
    """Two drivers could claim one start there."""
    name = s3.open_bucket()
    with LossyProxy(s3.port, b"PUT", hidden=b"if-none-match") as proxy:
        endpoint = f"http://127.0.0.1:{proxy.port}"
        object_store.use(
            {f"s3://{name}": {"endpoint": endpoint, "region": "us-east-1", "skip_signature": "true"}}
        )
        with pytest.raises(
            ConfigurationError, match=r"does not know puts under a condition .*Put the checkpoint into"
        ):
            folder(f"s3://{name}/without").create("1", b"mine")
    assert s3.store(name, "without").list().collect() == []


def test_one_place_has_one_name_however_it_is_written(bucket: str) -> None:
    """Also that of the version before, which wrote it through PyArrow."""
    for location in (f"s3a://{bucket}/jobs/one", f"s3://{bucket}//jobs/one/"):
        storage, root = resolve(location)
        assert Folder(storage, root, tag="t").identity(location) == f"{bucket}/s3:{bucket}/jobs/one"
    with pytest.raises(ConfigurationError, match="backslash"):
        resolve(f"s3://{bucket}/a\\b")


def test_a_token_of_the_environment_does_not_go_with_keys_that_were_said(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another")
    sent: list[bytes] = []
    with LossyProxy(s3.port, b"PUT ", seen=sent.append) as proxy:
        use(s3, bucket, endpoint=f"http://127.0.0.1:{proxy.port}")
        folder(f"s3://{bucket}/keys").write("a", b"a")
    assert b"authorization" in b"".join(sent).lower() and b"of-another" not in b"".join(sent)


def test_what_is_wrong_is_said_at_once_and_by_name(s3: S3Server, bucket: str) -> None:
    here = folder(f"s3://{bucket}/ck")
    here.write("a", b"a")
    use(s3, bucket, keys=READER)
    with pytest.raises(StorageUnavailable, match=rf"writing s3://{bucket}/ck/clonos/b failed.*Denied|403"):
        folder(f"s3://{bucket}/ck").write("b", b"b")
    assert folder(f"s3://{bucket}/ck").read("a") == b"a"
    use(s3, bucket, keys=Keys("nobody", "nothing"))
    with pytest.raises(StorageUnavailable, match=f"reading s3://{bucket}/ck/clonos/a failed"):
        folder(f"s3://{bucket}/ck").read("a")
    use(s3, "no-such-bucket")
    with pytest.raises(StorageUnavailable, match=r"no-such-bucket.*NoSuchBucket: The") as raised:
        folder("s3://no-such-bucket/ck").write("a", b"a")
    assert "\n" not in str(raised.value) and "<?xml" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="the object store s3:// cannot be used"):
        resolve("s3:///ck")


def test_a_store_that_is_down_is_an_outage_and_nothing_is_lost(s3: S3Server, bucket: str) -> None:
    here = folder(f"s3://{bucket}/ck")
    assert here.create("1", b"one")
    s3.kill()
    with pytest.raises(StorageUnavailable, match="writing s3://"):
        here.write("2", b"two")
    with pytest.raises(StorageUnavailable, match="listing s3://"):
        here.sizes("")
    s3.start()
    here.write("2", b"two")
    assert here.sizes("") == {"1": 3, "2": 3} and here.read("1") == b"one"


def test_a_session_says_of_a_bucket_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    conf: dict[str, Any] = {
        "fs.s3a.access.key": "general",
        "fs.s3a.bucket.mine.access.key": "own",
        "fs.s3a.bucket.mine.secret.key": " secret ",
        "fs.s3a.endpoint": "store:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "eu-central-1",
    }
    assert store_settings("s3a://mine/ck", conf.get) == {
        "s3://mine": {
            "access_key_id": "own",
            "secret_access_key": "secret",
            "endpoint": "http://store:9000",
            "virtual_hosted_style_request": "false",
            "region": "eu-central-1",
        }
    }
    conf |= {"fs.s3a.endpoint": "https://store/", "fs.s3a.path.style.access": "false"}
    assert store_settings("s3a://other/ck", conf.get)["s3://other"]["endpoint"] == "https://store"
    for location in ("/ck", "file:/ck", "hdfs://host/ck", "gs://bucket/ck"):
        assert store_settings(location, conf.get) == {}
    assert store_settings("s3a://mine/ck", {}.get) == {"s3://mine": {}}
    half = {"fs.s3a.access.key": "a", "fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com"}
    assert store_settings("s3a://mine/ck", half.get)["s3://mine"] == {
        "endpoint": "https://s3.eu-central-1.amazonaws.com",
        "region": "eu-central-1",
    }


def test_what_a_session_does_not_say_any_more_is_forgotten_and_others_are_not_told() -> None:
    object_store.use({"s3://mine": {"region": "a"}, "s3://other": {"region": "b"}})
    assert stores_of("s3a://mine/ck") == {"s3://mine": {"region": "a"}} and stores_of("/ck") == {}
    object_store.use(store_settings("s3a://mine/ck", {}.get))
    assert stores_of("s3a://mine/ck") == {} and stores_of("s3a://other/ck") == {"s3://other": {"region": "b"}}
