"""Pages have the notice about PyPI while Odradek is not published there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import installing

CHECKOUT = "# Page\n\nFirst.\n\n```console\n$ pip install .\n```\n"
BY_NAME = "# Page\n\nFirst.\n\n```console\n$ pip install 'odradek[spark]' pytest\n```\n"


def test_the_notice_on_each_page_matches_pyproject() -> None:
    assert list(installing.pages_with_wrong_notice()) == []


@pytest.mark.parametrize(
    ("text", "is_by_name"),
    [
        ("pip install odradek confluent-kafka", True),
        ("pipx install odradek", True),
        ("uvx odradek serve", True),
        ("pip install --user 'odradek[spark]'", True),
        ("pip install ./odradek", False),
        ("pip install --no-index --find-links wheels odradek", False),
        ("pip install dist/odradek-9.9-py3-none-any.whl", False),
        ("pip install '.[spark]'", False),
        ("pip install git+https://example.org/odradek.git", False),
    ],
)
def test_what_installs_by_name(text: str, is_by_name: bool) -> None:
    assert bool(installing.BY_NAME.search(text)) is is_by_name


def test_the_line_comes_and_goes_with_the_release(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(BY_NAME)
    noticed = installing.right(page, published=False)
    assert noticed.split("\n\n")[1].startswith("Odradek is not on PyPI yet. ")
    page.write_text(noticed)
    assert installing.right(page, published=False) == noticed
    assert installing.right(page, published=True) == BY_NAME
    page.write_text(CHECKOUT)
    assert installing.right(page, published=False) == CHECKOUT


def test_the_release_is_one_command_and_its_page_names_it() -> None:
    releasing = (installing.ROOT / "RELEASING.md").read_text("utf-8")
    makefile = (installing.ROOT / "Makefile").read_text("utf-8")
    assert "make publish" in releasing
    assert re.search(r"^publish:", makefile, re.MULTILINE)
    workflow = (installing.ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert "linux/amd64,linux/arm64" in workflow
