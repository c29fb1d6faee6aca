"""How a replica says what it has failed with: whose fault it is, whether to try again, and with a trace or without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clonos.errors import ClonosError, SinkError, StorageUnavailable, UserFunctionError
from clonos.protocol.fence import Fence
from clonos.spark.failure import named
from clonos.wire.messages import Hello
from clonos_standby.cluster.spec import NodeSpec, QuerySpec, load
from clonos_standby.cluster.spec_file import SpecFile
from clonos_standby.replica.process import Replica


class Ear:
    """Hears what is sent to the supervisor or the conduit."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, said: Any) -> None:
        self.said.append(said)


def reported(error: Exception) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the supervisor and the conduit hear of an error."""
    supervisor, conduit = Ear(), Ear()
    replica = Replica(supervisor, "nowhere")  # type: ignore[arg-type]
    hello = Hello("t", 1, 2, 0, 3, Fence.of(1), True)
    try:
        raise error
    except Exception as raised:
        replica._report(hello, conduit, raised)  # type: ignore[arg-type]
    frame = b"".join(bytes(piece) for piece in conduit.said[0])
    return supervisor.said[0], json.loads(frame[frame.index(b'{"error"') :])


def test_a_spec_that_is_gone_is_the_storages_fault(tmp_path: Path) -> None:
    with pytest.raises(
        StorageUnavailable, match=rf"from its data directory {tmp_path}: .*next start .* writes it"
    ):
        load(str(tmp_path / "spec-x.msgpack"))


def test_so_is_a_spec_that_is_damaged(tmp_path: Path) -> None:
    file = SpecFile(tmp_path / "spec-x.msgpack", {"version": 1, "token": "t"})
    file.write()
    whole = file.path.read_bytes()
    for damaged in (b"", whole[:-1], whole.replace(b"token", b"taken"), b"\0garbage\xff" * 20):
        file.path.write_bytes(damaged)
        with pytest.raises(StorageUnavailable, match=r"is damaged.*next start of the query writes it again"):
            load(str(file.path))


def test_an_error_of_the_operating_system_is_not_the_functions() -> None:
    failed, said = reported(FileNotFoundError(2, "No such file", "/data/x"))
    assert (failed["error"], said["error"], said["retryable"]) == (*["StorageUnavailable"] * 2, True)
    error = named(failed["error"], failed["message"])
    assert isinstance(error, StorageUnavailable) and error.retryable and "/data/x" in str(error)


@pytest.mark.parametrize(
    ("error", "traced"),
    [
        (UserFunctionError("'f' raised KeyError: 'x'"), True),
        (ValueError("anything else"), True),
        (SinkError("the table is gone", hint="Make it again"), False),
        (StorageUnavailable("the disk is full"), False),
    ],
)
def test_a_trace_is_shown_where_it_leads_into_the_users_function(error: Exception, traced: bool) -> None:
    failed, said = reported(error)
    assert ("Traceback" in failed["message"], "Traceback" in said["traceback"]) == (traced, traced)
    assert (error.message if isinstance(error, ClonosError) else str(error)) in failed["message"]


def test_a_module_that_cannot_be_imported_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Replica(Ear(), "nowhere")  # type: ignore[arg-type]
    replica._query = QuerySpec(query="q", token="t", checkpoint="/c", data="/d", names={2: "totals"})

    def gone(self: QuerySpec, number: int) -> NodeSpec:
        raise FileNotFoundError("config.yaml")

    monkeypatch.setattr(QuerySpec, "node", gone)
    with pytest.raises(UserFunctionError, match=r"function of 'totals' cannot be loaded: .*config\.yaml"):
        replica._node(2)
