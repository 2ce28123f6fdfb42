"""The commands of docs/five-minutes.md and other pages print what the pages show."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.docs.terminal import Terminal
from tests.support.deadlines import HANG_S

PAGE = "docs/five-minutes.md"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        return answer.read().decode()


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        for block in blocks(PAGE):
            terminal.take(block)
        control = terminal.here("http://127.0.0.1:18092/")
        assert "<title>" in get(control)
        rows = json.loads(get(f"{control}v1/views/transactions"))["transactions"]
        assert {row["transactional_id"] for row in rows} == {"shop", "billing"}


def take(page: str, folder: Path) -> None:
    with Terminal(folder) as terminal:
        for block in blocks(page):
            terminal.take(block)


@pytest.mark.parametrize("page", ["docs/README.md", "docs/page.md"])
def test_pages_that_start_a_broker(page: str, tmp_path: Path) -> None:
    take(page, tmp_path)


@pytest.mark.more
def test_the_page_of_commands(tmp_path: Path) -> None:
    take("docs/commands.md", tmp_path)
