"""The command `clonos` begins. Ctrl+C ends it without a word, also while the modules of the command are loaded."""

from __future__ import annotations

import sys


def main() -> int:
    """Its exit code."""
    try:
        from clonos.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
