"""MkDocs hooks that build the site from the project's Markdown pages (`mkdocs.yml` names this file).

A page of docs/ may link to any file of the project. The site has that file below ``project/``: a Markdown file as a page,
a picture unchanged, any other file as a page with its text. Files that these link to are added in the same way.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

LOG: Final = logging.getLogger("mkdocs.hooks")
ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = "docs/"
OTHERS: Final = "project/"
# Pages outside docs/ that are in the navigation.
ROOTS: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")
FILE_BYTES_MAX: Final = 100_000
PICTURES: Final = (".png", ".svg")
PICTURE_BYTES_MAX: Final = 1_000_000
# Pages whose tables need the whole width, so they have no table of contents.
WIDE: Final = ("docs/differences.md",)

# A code block, a code span, or the end of a link, with its text if that is the file name of a page.
PARTS: Final = re.compile(
    r"(?P<block>^```.*?^```$)|(?P<span>(`+)[^`].*?\3)|(?:\[(?P<name>[\w./-]+\.md))?\]\((?P<link>[^)\s]+)\)",
    re.M | re.S,
)
# A dot or underscore within a name, in text and not in a tag.
JOINTS: Final = re.compile(r"(?<=\w)([._])(?=\w)(?![^<]*>)")
# A picture that has a counterpart for the dark scheme.
LIGHT: Final = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<place>[^)\s]+)-light\.(?P<kind>png|svg)\)")
TITLE: Final = re.compile(r"^# (.+)$", re.M)
LINE_BEFORE_A_LIST: Final = re.compile(r"^(?!\s|[-*] |\d+\. |[|#>])(.+)\n(?=[-*] |1\. )", re.M)


def on_startup(*, command: str, **_: object) -> None:
    """Refuse network access during a build, which must only read this checkout."""
    if command == "build":
        sys.addaudithook(_refuse_network)


def _refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise OSError(f"the build of the site asks the network: {event} {arguments[-1]}")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to."""
    todo = [f"{PAGES}{file.src_uri}" for file in files.documentation_pages()] + [*ROOTS]
    seen: set[str] = set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.startswith(PAGES):
            new = File.generated(config, uri(path), content=_content(path))
            new.inclusion = InclusionLevel.INCLUDED if path in ROOTS else InclusionLevel.NOT_IN_NAV
            files.append(new)
        if path.endswith(".md"):
            todo += (target for target in _targets(path) if _is_taken(target))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Rewrite links to where the site has the file, and add the empty line that Python-Markdown needs before a list."""
    path = _path(page.file.src_uri)
    if path in WIDE:
        page.meta["hide"] = ["toc"]

    def changed(match: re.Match[str]) -> str:
        if match["block"]:
            return re.sub(r"\A```(\w+)[^\n]*", _info, match["block"])
        if match["span"]:
            return match[0]
        link = f"]({_rewritten(match['link'], path, page.file.src_uri)})"
        return f"[{_title(match['name'], match['link'], path)}{link}" if match["name"] else link

    markdown = LIGHT.sub(lambda picture: _for_both_schemes(picture, path), markdown)
    return _outside_of_code(
        lambda text: LINE_BEFORE_A_LIST.sub(r"\1\n\n", text), PARTS.sub(changed, markdown)
    )


def on_page_content(html: str, **_: object) -> str:
    """Allow line breaks behind dots and underscores of names in table cells, such as those of settings."""
    return re.sub(r"<td.*?</td>", lambda cell: JOINTS.sub(r"\1<wbr>", cell[0]), html, flags=re.S)


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Warn if a page loads anything from another host; a warning makes a strict build fail."""
    loaded = _Loaded()
    loaded.feed(output)
    for address in loaded.foreign:
        LOG.warning("%s loads %s from another host", page.file.src_uri, address)
    return output


class _Loaded(HTMLParser):
    """A collector of the URLs that a browser loads with a page (scripts, styles, pictures), without the targets of links."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            is_loaded = name in ("src", "srcset", "data", "poster") or (
                name == "href" and tag in ("link", "use")
            )
            if is_loaded and re.match(r"\s*(\w+:)?//", value or ""):
                self.foreign.append(f"{value}")
            # The theme would load the program that draws Mermaid diagrams from another host.
            if name == "class" and "mermaid" in (value or "").split():
                self.foreign.append("mermaid")


def _info(match: re.Match[str]) -> str:
    """Return the language and the title of a fence. Its other words are only for the tests."""
    title = re.search(r' title="[^"]*"', match[0])
    return f"```{match[1]}{title[0] if title else ''}"


def _outside_of_code(change: Callable[[str], str], text: str) -> str:
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _content(path: str) -> str | bytes:
    if path.endswith(PICTURES):
        return (ROOT / path).read_bytes()
    text = (ROOT / path).read_text("utf-8")
    if path.endswith(".md"):
        return text
    language = posixpath.splitext(path)[1].removeprefix(".").replace("mjs", "js")
    return f"# {path}\n\n````{language}\n{text}````\n"


def uri(path: str) -> str:
    """Return the site's path of a file of the project, which is given by its path below the root."""
    if path.startswith(PAGES):
        return path.removeprefix(PAGES)
    return f"{OTHERS}{path}" if path.endswith((".md", *PICTURES)) else f"{OTHERS}{path}.md"


def _path(src_uri: str) -> str:
    if src_uri.startswith(OTHERS):
        path = src_uri.removeprefix(OTHERS)
        return path if (ROOT / path).is_file() else path.removesuffix(".md")
    return f"{PAGES}{src_uri}"


def _targets(path: str) -> Iterator[str]:
    for match in PARTS.finditer((ROOT / path).read_text("utf-8")):
        if match["link"] and (target := _target(match["link"], path)):
            yield target


def _target(link: str, path: str) -> str | None:
    """Return the file of the project that a link in this file leads to; for a folder its README."""
    place = link.partition("#")[0]
    if not place or "://" in place:
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), place))
    return posixpath.join(target, "README.md") if (ROOT / target).is_dir() else target


def _is_taken(target: str) -> bool:
    file = ROOT / target
    bytes_max = PICTURE_BYTES_MAX if target.endswith(PICTURES) else FILE_BYTES_MAX
    return file.is_file() and not target.startswith(PAGES) and file.stat().st_size <= bytes_max


def _for_both_schemes(picture: re.Match[str], path: str) -> str:
    text, place, kind = picture.group("text", "place", "kind")
    if not (ROOT / posixpath.dirname(path) / f"{place}-dark.{kind}").is_file():
        return picture[0]
    return f"![{text}]({place}-light.{kind}#only-light)![{text}]({place}-dark.{kind}#only-dark)"


def _title(name: str, link: str, path: str) -> str:
    """Return the title of the linked page, which the site shows in place of the file name."""
    target = _target(link, path)
    found = TITLE.search((ROOT / target).read_text("utf-8")) if target and (ROOT / target).is_file() else None
    return found[1] if found else name


def _rewritten(link: str, path: str, src_uri: str) -> str:
    """Return the link as the site needs it. A broken link is not changed, so that MkDocs reports it and the build fails."""
    target = _target(link, path)
    if target is None or not (target.startswith(PAGES) or _is_taken(target)):
        return link
    _, mark, anchor = link.partition("#")
    return posixpath.relpath(uri(target), posixpath.dirname(src_uri) or ".") + mark + anchor
