"""How Odradek is had, as the pages say it: ``python -m tests.docs.installing [--write]``.

As long as no package index has it, each page that installs it by its name begins with a line that says how it is had; once
``published`` is true in pyproject.toml, no page has that line. Without ``--write`` the pages that say otherwise are listed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "installing.md"
BY_NAME = re.compile(
    r"\b(?:pip|pipx|uv tool|uv pip) install (?!--no-index)[^`\n]*?(?<![\w/.=-])odradek\b(?![\w/.-])|\buvx odradek\b"
)
"""The package's name, taken from an index: not the path of a checkout or a wheel, nor a name in a folder of wheels."""
NOTICE = re.compile(r"^No package index has Odradek yet: .*\n\n", re.MULTILINE)


def notice(page: Path) -> str:
    where = os.path.relpath(PAGE, page.parent)
    return (
        "No package index has Odradek yet: in place of its name give pip the path of a checkout, a git URL or a wheel "
        f"([installing]({where})).\n\n"
    )


def is_published() -> bool:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    return bool(tool["odradek"]["published"])


def pages() -> Iterator[Path]:
    """Those that a user reads; the README, docs/ but the decisions, and examples/."""
    for folder, pattern in ((ROOT, "README.md"), (ROOT / "docs", "**/*.md"), (ROOT / "examples", "**/*.md")):
        yield from (path for path in sorted(folder.glob(pattern)) if "adr" not in path.parts and path != PAGE)


def right(page: Path, *, published: bool) -> str:
    """The text of the page, as the state of the release asks for it."""
    text = NOTICE.sub("", page.read_text("utf-8"))
    if published or not BY_NAME.search(text):
        return text
    title, rest = text.split("\n\n", 1)
    return f"{title}\n\n{notice(page)}{rest}"


def wrong() -> dict[Path, str]:
    """The pages that say otherwise than the release, and what they would have to be."""
    published = is_published()
    found = {page: right(page, published=published) for page in pages()}
    return {page: text for page, text in found.items() if text != page.read_text("utf-8")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the pages right")
    options = parser.parse_args()
    found = wrong()
    for page, text in found.items():
        print(page.relative_to(ROOT))
        if options.write:
            page.write_text(text, "utf-8")
    return int(bool(found) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
