"""A real browser for tests: the Chromium of this host, without a window."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 120_000


@contextlib.contextmanager
def browser_page() -> Iterator[Any]:
    """An empty page. What its scripts raise, the test raises at the end. Skipped where there is no browser."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium on this host")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_page(viewport={"width": 1240, "height": 1300})
            page.set_default_timeout(PATIENCE_MS)
            raised: list[str] = []
            page.on("pageerror", lambda error: raised.append(str(error)))
            yield page
            assert raised == []
        finally:
            browser.close()
