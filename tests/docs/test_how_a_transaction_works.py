"""docs/how-a-transaction-works.md: each chapter runs as printed, and has the output that the page shows."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import odradek
from tests.docs.literate import DOCS, Chapter, Reader, chapters, comparable

PAGE = (DOCS / "how-a-transaction-works.md").read_text("utf-8")
CHAPTERS = chapters(PAGE)


def parameter(chapter: Chapter) -> object:
    asks_java = any(piece.text.startswith("java: ") for piece in chapter.pieces)
    return pytest.param(chapter.title, id=chapter.title, marks=[pytest.mark.java] if asks_java else [])


def box_texts(svg: Path) -> list[str]:
    """Return the texts in the boxes of a picture."""
    texts = ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    return sorted(each.text or "" for each in texts if "lane-word" in (each.get("class") or ""))


def expected_box_texts(broker: odradek.Broker, transactional_id: str) -> list[str]:
    """Return the texts that the boxes of a timeline must have."""
    words = []
    for event in broker.timeline(transactional_id).events:
        match event["kind"]:
            case "state":
                words.append(event["state"])
            case "batch":
                count = event["records"]
                words.append(
                    "group offsets"
                    if event["offsets"]
                    else f"{count} record{'s' * (count != 1)} @{event['offset']}"
                )
            case "marker":
                words.append(f"{event['marker']} @{event['offset']}")
    return sorted(words)


def compare(broker: odradek.Broker, transactional_id: str, picture: Path) -> None:
    assert box_texts(picture) == expected_box_texts(broker, transactional_id)


@pytest.mark.parametrize("title", [parameter(chapter) for chapter in CHAPTERS])
def test_the_broker_says_what_the_page_says(title: str) -> None:
    (chapter,) = [each for each in chapters(PAGE) if each.title == title]
    with Reader(compare) as reader:
        reader.read(chapter)
    for piece in chapter.pieces:
        if piece.language in ("console", "text"):
            assert comparable(piece.shown) == comparable(piece.text)


def test_every_block_is_run() -> None:
    assert len(re.findall(r"^```\w", PAGE, re.M)) == sum(
        piece.language != "asked" for chapter in CHAPTERS for piece in chapter.pieces
    )
    assert {piece.language for chapter in CHAPTERS for piece in chapter.pieces} == {
        "asked",
        "console",
        "python",
        "text",
    }
