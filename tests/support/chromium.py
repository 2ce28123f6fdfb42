"""Pages of a broker in a headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.deadlines import HANG_S

HANG_MS: Final = HANG_S * 1000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser. As long as it is open, Playwright runs an event loop in this thread, so asyncio tests must run
    later."""
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start as root, as in a container. Without subpixel text, pictures are the same on all
        # screens.
        found = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-lcd-text"],
        )
        yield found
        found.close()


@contextmanager
def opened(browser: Browser, url: str, view: str, **options: Any) -> Iterator[Page]:
    """Open a view of the page in a new browser context with these options. An error in the page's scripts fails the test."""
    errors: list[str] = []
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(HANG_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}/#/{view}")
    yield page
    context.close()
    assert errors == []
