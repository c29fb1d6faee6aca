"""What the tests rest on: the S3 server's conditional requests, of which one wins, and data that outlive a kill."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store
from s3_server import READER, S3Server, s3_server

pytestmark = pytest.mark.s3
_AT_ONCE = 4


def test_of_puts_at_once_that_expect_no_object_one_is_taken(s3: S3Server) -> None:
    store = s3.store(s3.fresh_bucket())

    def is_taken(what: bytes) -> bool:
        try:
            store.put("folder/one", what, mode="create")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        offered = [b"%d" % each for each in range(_AT_ONCE)]
        taken = list(pool.map(is_taken, offered))
    assert taken.count(True) == 1
    assert bytes(store.get("folder/one").bytes()) == offered[taken.index(True)]


def test_a_put_that_expects_another_object_is_refused(s3: S3Server) -> None:
    store = s3.store(s3.fresh_bucket())
    first = store.put("one", b"1")
    store.put("one", b"2", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        store.put("one", b"3", mode={"e_tag": first["e_tag"]})
    assert bytes(store.get("one").bytes()) == b"2"


def test_a_reader_may_not_write(s3: S3Server) -> None:
    bucket = s3.fresh_bucket()
    with pytest.raises(PermissionDeniedError):
        S3Store(bucket, **s3.options(READER)).put("one", b"1")


def test_what_was_put_is_there_after_a_kill() -> None:
    with s3_server() as server:
        store = server.store(server.fresh_bucket())
        for each in range(20):
            store.put(f"log/{each:03d}", b"%d" % each)
        server.kill()
        server.start()
        found = [each["path"] for each in store.list("log/", offset="log/004").collect()]
        assert found == [f"log/{each:03d}" for each in range(5, 20)]
        assert bytes(store.get("log/019").bytes()) == b"19"
