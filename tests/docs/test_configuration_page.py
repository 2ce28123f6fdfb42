"""docs/configuration.md: settings of one node work from each source as printed, and so does the example with racks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.config.sources import for_node, given_settings, strongest
from tests.docs.literate import DOCS, Reader, chapters, comparable

PAGE = (DOCS / "configuration.md").read_text("utf-8")


def test_each_source_has_the_rack_of_one_node(tmp_path: Path) -> None:
    forms = dict(re.findall(r"^\| an? (option|variable|file) \| `(?:--set )?(.+)` \|$", PAGE, re.M))
    name, value = forms["option"].split("=")
    file = tmp_path / "server.properties"
    file.write_text(forms["file"])
    for given in (
        given_settings(None, {}, {name: value}, {}),
        given_settings(None, dict([forms["variable"].split("=")]), {}, {}),
        given_settings(file, {}, {}, {}),
    ):
        assert strongest(for_node(given, 2))["broker.rack"].raw == "b"
        assert "broker.rack" not in strongest(for_node(given, 1))


@pytest.mark.more
def test_a_consumer_reads_in_its_rack() -> None:
    [chapter] = [each for each in chapters(PAGE) if each.title == "Settings of one node"]
    with Reader() as reader:
        reader.read(chapter)
    for piece in chapter.pieces:
        if piece.language in ("console", "text"):
            assert comparable(piece.shown) == comparable(piece.text)
