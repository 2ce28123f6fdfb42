"""The pictures in docs/pictures: a page shows each of them, and they stay small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.recording import render

DOCS = Path(__file__).resolve().parents[2] / "docs"
BYTES_MAX = 1_500_000
PICTURES = {path.relative_to(DOCS).as_posix() for path in (DOCS / "pictures").iterdir()}
VIEWS = re.findall(
    r"title = '(.+)'",
    "".join(path.read_text("utf-8") for path in sorted(DOCS.parent.glob("lab/control/page/views/*.js"))),
)


def shown() -> set[str]:
    """Return the pictures that pages of docs/ show or link to."""
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    found = re.findall(
        r"\]\((?:docs/)?(pictures/[^)#]+)\)", "".join(page.read_text("utf-8") for page in pages)
    )
    return set(found)


def test_each_picture_is_shown_and_each_that_is_shown_is_there() -> None:
    assert shown() == PICTURES


def test_each_view_of_the_page_has_a_picture_in_both_schemes() -> None:
    names = [view.lower().replace(" ", "-") for view in VIEWS]
    assert len(names) == 8
    assert {
        f"pictures/page-{name}-{scheme}.png" for name in names for scheme in ("light", "dark")
    } <= PICTURES


def test_they_are_small() -> None:
    assert sum((DOCS / name).stat().st_size for name in PICTURES) < BYTES_MAX


@pytest.mark.parametrize("name", sorted(name for name in PICTURES if name.endswith(".svg")))
def test_a_drawing_asks_no_other_host_for_anything(name: str) -> None:
    text = (DOCS / name).read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "//" not in text


def test_the_recording_shows_each_line_when_it_came() -> None:
    long = "kills                  " + " and again" * 8
    svg = render(
        [
            (1.0, "   1.0 s  broker killed before Prepare; restarting"),
            (4.0, long),
            (5.0, "lost 0, duplicated 0"),
        ]
    )
    texts = re.findall(r'<text [^>]*line-(\d+)\)" style="animation-delay:([\d.]+)s"', svg)
    assert {(int(line), float(delay)) for line, delay in texts} == {
        (0, 0),
        (1, 0.5),
        (2, 2),
        (3, 2),
        (4, 2.5),
    }


def test_the_recording_is_one_of_a_demo_that_lost_and_duplicated_nothing() -> None:
    text = (DOCS / "pictures" / "demo.svg").read_text("utf-8").replace("&#160;", " ")
    assert ">lost 0, duplicated 0<" in text
    assert "killed between Prepare and the markers" in text
    assert len(text) < 300_000
