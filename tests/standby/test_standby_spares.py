"""What a replica server imports before it forks: what its query needs, and no other query's."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import pytest

from clonos.protocol.recovery.choice import PolicyChoice
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sinks import jsonl, sql

ENTRY = "clonos_standby.replica.process:main"
LOOK = f"""
import pickle, sys
from clonos_standby.server import spares
node = sys.stdin.buffer.read()
assert spares.warm({ENTRY!r}, [node]) == []
before = set(sys.modules)
pickle.loads(node)
print("sqlalchemy" in before, sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize(
    ("node", "needs_a_database"),
    [
        (jsonl("/tmp/anywhere"), False),
        (sql("sqlite:////tmp/anywhere.db", "t"), True),
        (PolicyChoice(RecoveryKind.EVENT_LOG), True),
        (PolicyChoice(RecoveryKind.EAGER), False),
    ],
    ids=["file", "table", "logs of events", "files of checkpoints"],
)
def test_a_node_finds_all_it_needs_and_a_database_only_where_it_has_one(
    node: object, needs_a_database: bool
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOOK],
        input=cloudpickle.dumps(node),
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert run.stdout.decode().split() == [str(needs_a_database), "[]"]
