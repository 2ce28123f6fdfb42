"""The notice on the pages that Odradek is not on PyPI yet: ``python -m tests.docs.installing [--write]``.

While ``published`` is false in pyproject.toml, each page that installs Odradek by its package name begins with the notice,
which tells the reader what to install instead. Once ``published`` is true, no page has it. The command lists the pages that
do not match ``published``, and with ``--write`` corrects them.
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
"""A command that installs the package by its name from an index. A path of a checkout or wheel does not match, nor does an
installation from a folder of wheels."""
NOTICE = re.compile(r"^Odradek is not on PyPI yet\. .*\n\n", re.MULTILINE)


def notice(page: Path) -> str:
    where = os.path.relpath(PAGE, page.parent)
    return (
        "Odradek is not on PyPI yet. In the commands below, replace the package name `odradek` by the path of a checkout, "
        f"a git URL or a wheel ([installing]({where})).\n\n"
    )


def is_published() -> bool:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    return bool(tool["odradek"]["published"])


def pages() -> Iterator[Path]:
    """Yield the pages for users: README.md, docs/ without the ADRs, and examples/."""
    for folder, pattern in ((ROOT, "README.md"), (ROOT / "docs", "**/*.md"), (ROOT / "examples", "**/*.md")):
        yield from (path for path in sorted(folder.glob(pattern)) if "adr" not in path.parts and path != PAGE)


def right(page: Path, *, published: bool) -> str:
    """Return the text of the page with the notice added or removed as ``published`` requires."""
    text = NOTICE.sub("", page.read_text("utf-8"))
    if published or not BY_NAME.search(text):
        return text
    title, rest = text.split("\n\n", 1)
    return f"{title}\n\n{notice(page)}{rest}"


def pages_with_wrong_notice() -> dict[Path, str]:
    """Return the pages whose notice does not match ``published`` in pyproject.toml, with their corrected text."""
    published = is_published()
    found = {page: right(page, published=published) for page in pages()}
    return {page: text for page, text in found.items() if text != page.read_text("utf-8")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="correct the pages")
    options = parser.parse_args()
    found = pages_with_wrong_notice()
    for page, text in found.items():
        print(page.relative_to(ROOT))
        if options.write:
            page.write_text(text, "utf-8")
    return int(bool(found) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
