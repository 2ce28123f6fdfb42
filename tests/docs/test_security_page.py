"""docs/security.md, as a reader types it: each chapter in a directory of its own, and what it says of refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.kafka_scripts import write_scripts
from tests.docs.terminal import Terminal

PAGE = "docs/security.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
SCRIPTS = ("kafka-acls", "kafka-delegation-tokens")
Chapter = tuple[str, list[Block]]


def chapters() -> list[Chapter]:
    """Those with blocks."""
    lines = TEXT.splitlines()
    found: dict[str, list[Block]] = {}
    for block in blocks(PAGE):
        heading = next(line for line in reversed(lines[: block.line]) if line.startswith("## "))
        found.setdefault(heading.removeprefix("## "), []).append(block)
    return list(found.items())


def needs_kafka(chapter: Chapter) -> bool:
    return any(f"{script}.sh" in block.text for block in chapter[1] for script in SCRIPTS)


def title(chapter: Chapter) -> str:
    return chapter[0]


def take(chapter: Chapter, folder: Path, programs: Path | None = None) -> None:
    here = {} if programs is None else {"programs": programs}
    (work := folder / "work").mkdir()
    with Terminal(work, **here) as terminal:
        for block in chapter[1]:
            terminal.take(block)


@pytest.mark.more
@pytest.mark.parametrize("chapter", [each for each in chapters() if not needs_kafka(each)], ids=title)
def test_a_chapter(chapter: Chapter, tmp_path: Path) -> None:
    take(chapter, tmp_path)


@pytest.mark.java
@pytest.mark.parametrize("chapter", [each for each in chapters() if needs_kafka(each)], ids=title)
def test_a_chapter_with_kafka_s_own_tools(chapter: Chapter, tmp_path: Path) -> None:
    take(chapter, tmp_path, write_scripts(tmp_path / "bin", SCRIPTS))
