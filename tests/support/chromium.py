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
def new_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """Yield an empty page in a new browser context with these options."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(HANG_MS)
    yield page
    context.close()


@contextmanager
def opened(page: Page, url: str, view: str) -> Iterator[Page]:
    """Open a view in a page, and leave the page empty. An error in the page's scripts fails the test."""
    errors: list[str] = []

    def note(error: object) -> None:
        errors.append(str(error))

    page.on("pageerror", note)
    page.goto(f"{url}/#/{view}")
    yield page
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.goto("about:blank")  # the next test may open the same view, which alone would not load the page
    page.remove_listener("pageerror", note)
    assert errors == []
