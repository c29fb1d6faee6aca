"""Generates the Python code of `proto/` into `clonos/wire/_gen`; `--check` only says whether it is current."""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "clonos" / "wire" / "_gen"


def generate(directory: Path) -> None:
    """Run protoc for every contract, with imports that work inside the package."""
    protos = sorted((ROOT / "proto").rglob("*.proto"))
    if not protos:
        sys.exit("no contracts under proto/")
    tree = directory / "tree"
    tree.mkdir(parents=True)
    options = [f"--{kind}_out={tree}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", *options, *map(str, protos)],
        check=True,
    )
    for made in sorted(tree.rglob("*.py*")):
        text = made.read_text("utf-8")
        for proto in protos:
            package = ".".join(proto.relative_to(ROOT / "proto").parent.parts)
            text = text.replace(f"from {package} import", "from . import")
        (directory / made.name).write_text(text, "utf-8")
    shutil.rmtree(tree)
    (directory / "__init__.py").write_text("", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail where the code is not current"
    )
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as made:
        generate(Path(made))
        names = sorted(path.name for path in Path(made).iterdir())
        stale = filecmp.cmpfiles(made, TARGET, names, shallow=False)[1:] if TARGET.is_dir() else (names, [])
        differing = sorted(name for group in stale for name in group)
        if check and differing:
            print(f"not current: {', '.join(differing)}; run `make proto` and commit the result")
            return 1
        if not check:
            shutil.copytree(made, TARGET, dirs_exist_ok=True)
            print(f"{len(differing)} of {len(names)} files changed in {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
