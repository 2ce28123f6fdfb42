"""The pictures of docs/pictures: each is shown by a page, and they stay small."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
BYTES_MAX = 1_500_000
PICTURES = {path.relative_to(DOCS).as_posix() for path in (DOCS / "pictures").iterdir()}
VIEWS = re.findall(
    r"title = '(.+)'",
    "".join(path.read_text("utf-8") for path in sorted(DOCS.parent.glob("broker/control/page/views/*.js"))),
)


def shown() -> set[str]:
    """What pages of docs/ refer to, as a picture or a link."""
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    found = re.findall(
        r"\]\((?:docs/)?(pictures/[^)#]+)\)", "".join(page.read_text("utf-8") for page in pages)
    )
    return set(found)


def test_each_picture_is_shown_and_each_that_is_shown_is_there() -> None:
    assert shown() == PICTURES


def test_each_view_of_the_page_has_a_picture_in_both_schemes() -> None:
    names = [view.lower().replace(" ", "-") for view in VIEWS]
    assert len(names) == 7
    assert {
        f"pictures/page-{name}-{scheme}.png" for name in names for scheme in ("light", "dark")
    } <= PICTURES


def test_they_are_small() -> None:
    assert sum((DOCS / name).stat().st_size for name in PICTURES) < BYTES_MAX
