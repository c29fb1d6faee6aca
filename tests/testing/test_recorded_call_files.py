"""A file of a recorded call that is damaged is a test that fails, whatever is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "recorded_call_v1.bin"
WHOLE = GOLDEN.read_bytes()
DAMAGED = {
    "empty": b"",
    "zeros": bytes(len(WHOLE)),
    "cut-off": WHOLE[:-1],
    "pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "object": b"{}",
    "null": b"null",
    "first-byte": bytes([WHOLE[0] ^ 1]) + WHOLE[1:],
    "last-byte": WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]),
    "line-ends": b"\r\n" + WHOLE,
}
CONFTEST = 'pytest_plugins = ["clonos.testing.pytest_plugin"]\n'


def tried(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rN", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_that_is_damaged_fails_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, content in DAMAGED.items():
        (tmp_path / f"{name}.call").write_bytes(content)
    result = tried(tmp_path)
    assert f"{len(DAMAGED)} failed" in result.stdout and "passed" not in result.stdout, result.stdout
    assert result.stdout.count("git lfs pull") == len(DAMAGED), "each says what to do"
    assert all(f"{name}.call" in result.stdout for name in DAMAGED), result.stdout


def test_those_of_another_program_are_named_in_a_conftest(tmp_path: Path) -> None:
    """As the message of one that is collected advises."""
    (tmp_path / "telephones").mkdir()
    (tmp_path / "telephones" / "first.call").write_text("Channel: SIP/1\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    result = tried(tmp_path)
    assert result.returncode == 1 and "name it in collect_ignore_glob" in result.stdout, result.stdout
    (tmp_path / "telephones" / "conftest.py").write_text('collect_ignore_glob = ["*.call"]\n')
    result = tried(tmp_path)
    assert result.returncode == 5 and "no tests ran" in result.stdout, result.stdout
