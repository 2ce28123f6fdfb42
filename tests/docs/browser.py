"""Functions that open the broker's web page in headless Chromium and make pictures of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page

from tests.support.chromium import new_page, opened

WIDTH: Final = 1180
HEIGHT_MIN: Final = 360


@contextmanager
def view(browser: Browser, url: str, name: str, scheme: str = "light") -> Iterator[Page]:
    """Open a view of the broker's web page, with the size and settings that all pictures have."""
    size = {"width": WIDTH, "height": HEIGHT_MIN}
    options = {"color_scheme": scheme, "viewport": size, "reduced_motion": "reduce"}
    with new_page(browser, **options) as page, opened(page, url, name):
        yield page


def save_lanes(browser: Browser, url: str, transactional_id: str, to: Path) -> None:
    """Save the timeline of a transactional id as SVG, by the page's button "save as SVG"."""
    with view(browser, url, f"timeline/{transactional_id}") as page:
        page.locator(".lanes svg").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="save as SVG").click()
        download.value.save_as(to)
