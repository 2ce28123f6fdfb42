"""The page of a broker in a headless Chromium, for pictures of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.deadlines import HANG_S

HANG_MS: Final = HANG_S * 1000
WIDTH: Final = 1180
HEIGHT_MIN: Final = 360


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox there. Without subpixels a picture looks the same on every screen.
        found = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-lcd-text"],
        )
        yield found
        found.close()


@contextmanager
def view(browser: Browser, url: str, name: str, scheme: str = "light") -> Iterator[Page]:
    """A view of the page; an error in the page's scripts is an error here."""
    errors: list[str] = []
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT_MIN}, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(HANG_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}/#/{name}")
    yield page
    context.close()
    assert errors == []


def save_lanes(browser: Browser, url: str, transactional_id: str, to: Path) -> None:
    """The timeline of an id, as the page's button saves it."""
    with view(browser, url, f"timeline/{transactional_id}") as page:
        page.locator(".lanes svg").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="save as SVG").click()
        download.value.save_as(to)
