"""The code blocks of a page of the documentation.

A fence's first word is its language. ``title="NAME"`` is the file name under which the reader saves the block. A block that
no test can run comes after ``<!-- not run: REASON -->``, and `test_blocks.py` lists it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n\n?)?^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    title: str
    text: str
    not_run: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """Return all blocks of a page, which is given by its path from the root of the checkout."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            found[1] if (found := re.search(r'title="([^"]+)"', match["rest"])) else "",
            match["text"],
            match["reason"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]


def titled(page: str) -> dict[str, str]:
    """Return the files that a page tells its reader to save, by name."""
    return {block.title: block.text for block in blocks(page) if block.title}
