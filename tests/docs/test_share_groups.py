"""docs/share-groups.md runs as printed, and has the output that the page shows."""

from __future__ import annotations

from tests.docs.literate import DOCS, Reader, chapters, comparable


def test_the_broker_and_the_client_do_what_the_page_says() -> None:
    found = chapters((DOCS / "share-groups.md").read_text("utf-8"))
    assert len(found) == 3
    with Reader() as reader:
        for chapter in found:
            reader.read(chapter)
            for piece in chapter.pieces:
                if piece.language in ("console", "text"):
                    assert comparable(piece.shown) == comparable(piece.text)
