"""The fake driver that continues where its predecessor died."""

from __future__ import annotations

import sys

from demo_fake_driver import main

sys.exit(main(sys.argv[1], exact=True))
