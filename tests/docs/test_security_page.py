"""The chapters of docs/security.md run as printed, each in a separate directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.kafka_scripts import write_scripts
from tests.docs.terminal import BINARIES, Terminal

PAGE = "docs/security.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
SCRIPTS = ("kafka-acls", "kafka-delegation-tokens")
Chapter = tuple[str, list[Block]]


def chapters() -> list[Chapter]:
    """Return the sections with code blocks."""
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


def take(chapter: Chapter, folder: Path, programs: Path = BINARIES) -> None:
    (work := folder / "work").mkdir()
    with Terminal(work, programs=programs) as terminal:
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


def test_the_clients_are_those_of_the_tests() -> None:
    tested = {}
    for file in (ROOT / "tests" / "clients" / "security").glob("test_*_handshakes.py"):
        for part in file.read_text("utf-8").split("@pytest.mark.client(")[1:]:
            tested[part.split('"')[1]] = "authenticates_again = False" not in part
    table = TEXT.partition("\n## Clients\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (.+?) \| yes \| yes \| yes \| (yes|no)\b", table, re.M)
    assert {client: again == "yes" for client, again in listed} == tested != {}
