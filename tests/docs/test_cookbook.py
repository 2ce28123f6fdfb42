"""docs/cookbook.md: each recipe runs as printed, and has the output that the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.literate import DOCS, Reader, chapters, comparable

PAGE = (DOCS / "cookbook.md").read_text("utf-8")
RECIPES = chapters(PAGE, of_parts=True)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """A reader with one broker for all recipes of a part, which is reset before each recipe."""
    with Reader() as reader:
        yield reader


@pytest.mark.parametrize("title", [recipe.title for recipe in RECIPES])
def test_it_does_what_it_says(title: str, reader: Reader) -> None:
    (recipe,) = [each for each in RECIPES if each.title == title]
    reader.read(recipe)
    for piece in recipe.pieces:
        if piece.language in ("console", "text"):
            assert comparable(piece.shown) == comparable(piece.text)


def test_each_recipe_has_its_parts() -> None:
    recipes = re.split(r"^### ", PAGE, flags=re.M)[1:]
    assert len(recipes) > 15
    for recipe in recipes:
        assert "**In production**" in recipe, recipe.splitlines()[0]
        assert "**Here**" in recipe, recipe.splitlines()[0]
