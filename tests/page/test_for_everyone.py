"""The control page with a keyboard only, with a screen reader, on a phone and on a large screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import Open, Staged
from tests.support.chromium import HANG_MS

pytestmark = [pytest.mark.chromium, pytest.mark.more]
expect.set_options(timeout=HANG_MS)

AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text()
VIEWS = {
    "transactions": "billing",
    "partitions/orders": "orders-0",
    "messages/orders": "aborted",
    "groups": "No group has members",
    "timeline/billing": "CompleteCommit",
    "trace": "EndTxn",
    "rules": "Examples",
    "cluster": "Node 3",
}


def views(page: Page, staged: Staged) -> Iterator[str]:
    """Load each view into the page, and yield its name when its content is there.

    A new page for each view would cost a second of CPU.
    """
    for view, word in VIEWS.items():
        page.goto("about:blank")  # a change of the fragment alone would not load the page again
        page.goto(f"{staged.broker.control_url}/#/{view}")
        expect(page.locator("main")).to_contain_text(word)
        yield view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page: Open, staged: Staged, scheme: str) -> None:
    page = open_page("", color_scheme=scheme, bypass_csp=True)
    for view in views(page, staged):
        page.evaluate(AXE)
        found = page.evaluate("axe.run()")["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], view


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_no_view_is_wider_than_its_window(open_page: Open, staged: Staged, width: int) -> None:
    page = open_page("", viewport={"width": width, "height": 740})
    for view in views(page, staged):
        page.evaluate("document.querySelectorAll('main > details').forEach((each) => { each.open = true })")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width, view


def test_on_a_phone_no_tab_and_no_cell_is_cut(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions", viewport={"width": 360, "height": 740})
    expect(page.locator("main")).to_contain_text("billing")
    outside = "(each) => { const box = each.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth }"
    for cells in ("nav a", "tbody th, tbody td, tbody button"):
        found = page.evaluate(
            f"[...document.querySelectorAll('{cells}')].filter({outside}).map((each) => each.textContent)"
        )
        assert found == []


def test_tabs_do_not_move_when_another_is_chosen(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions")
    places = "[...document.querySelectorAll('nav a')].map((each) => each.getBoundingClientRect().x)"
    expect(page.locator("main")).to_contain_text("billing")
    before = page.evaluate(places)
    for name in ("Partitions", "Nodes and clock", "Trace"):
        page.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, level=2)).to_be_visible()
        assert page.evaluate(places) == before


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
