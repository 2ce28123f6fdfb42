"""The page without a mouse, with a screen reader, on a phone and on a wall."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import expect

from tests.page.conftest import Open, Staged
from tests.support.chromium import HANG_MS

pytestmark = [pytest.mark.chromium, pytest.mark.more]
expect.set_options(timeout=HANG_MS)

AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text()
VIEWS = {
    "transactions": "billing",
    "partitions/orders": "orders-0",
    "groups": "No group has members",
    "timeline/billing": "CompleteCommit",
    "trace": "EndTxn",
    "rules": "Some to begin with",
    "cluster": "Node 3",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page: Open, staged: Staged, scheme: str) -> None:
    for view, word in VIEWS.items():
        page = open_page(view, color_scheme=scheme, bypass_csp=True)
        expect(page.locator("main")).to_contain_text(word)
        page.evaluate(AXE)
        found = page.evaluate("axe.run()")["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], view


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_no_view_is_wider_than_its_window(open_page: Open, staged: Staged, width: int) -> None:
    for view, word in VIEWS.items():
        page = open_page(view, viewport={"width": width, "height": 740})
        expect(page.locator("main")).to_contain_text(word)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, view


def test_a_keyboard_is_enough(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions")
    expect(page.locator("main")).to_contain_text("billing")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the view")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("2")
    expect(page.get_by_role("heading", name="Partitions", level=2)).to_be_visible()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Rules":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Rules", level=2)).to_be_visible()
