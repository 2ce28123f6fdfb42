"""Every code block of the pages for users is run by a test, or has a reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.terminal import check_is_installed, commands, matches

DOCS = ROOT / "docs"
PAGES = [
    "docs/README.md",
    "docs/commands.md",
    "docs/five-minutes.md",
    "docs/security.md",
    *sorted(f"docs/recipes/{path.name}" for path in (DOCS / "recipes").glob("*.md")),
]
# The test that runs the blocks of a page; it fails for a block that it does not know.
TAKEN_BY = {
    "docs/README.md": "tests/docs/test_commands.py",
    "docs/commands.md": "tests/docs/test_commands.py",
    "docs/five-minutes.md": "tests/docs/test_commands.py",
    "docs/security.md": "tests/docs/test_security_page.py",
    "docs/recipes/ci.md": "tests/docs/test_recipes.py",
    "docs/recipes/docker.md": "tests/clients/test_testcontainers.py",
    "docs/recipes/go.md": "tests/clients/test_examples_of_languages.py",
    "docs/recipes/junit.md": "tests/clients/test_examples_of_languages.py",
    "docs/recipes/kafka-ui.md": "tests/docs/test_recipes.py",
    "docs/recipes/node.md": "tests/clients/test_examples_of_languages.py",
    "docs/recipes/pytest.md": "tests/docs/test_recipes.py",
    "docs/recipes/spark.md": "tests/docs/test_recipes.py",
    "docs/recipes/testcontainers.md": "tests/clients/test_testcontainers.py",
}
# Pages that no test names, and the reason.
NAMED_BY_NONE = {
    "docs/adr/0032-a-field-is-declared-once.md": "the declaration of one message, which protocol/messages has",
    "docs/proxy.md": "a command with the names of another cluster's hosts",
    "docs/spark.md": "one call with dots in it",
    "docs/spark/sink.md": "parts of jobs, and output of a broken one; tests/spark/sink has whole ones",
}
NOT_RUN = {
    "docs/recipes/docker.md": "the test machines have no compose: the tests check the variables, ports and services",
    "docs/recipes/kafka-ui.md": "the test machines have no Kafka UI: the tests check the file and make its calls",
    "docs/recipes/spark.md": "the tests run this test in the Spark session that all Spark tests share",
    "docs/recipes/testcontainers.md": "the test machines have no .NET",
}


@pytest.mark.parametrize("page", PAGES)
def test_a_test_takes_the_blocks_of_each_page(page: str) -> None:
    if blocks(page):
        assert f'"{page}"' in (ROOT / TAKEN_BY[page]).read_text("utf-8")


def test_a_test_names_each_page_with_code() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    tests = [path.read_text("utf-8") for path in files]
    pages = [path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")]
    with_code = [page for page in pages if blocks(page)]
    # A test may name only the last part of the path.
    named = {page for page in with_code for text in tests if page in text or f'"{Path(page).name}"' in text}
    assert set(with_code) - named == NAMED_BY_NONE.keys() - named


def test_what_is_not_run_is_listed_with_its_reason() -> None:
    assert {block.page: block.not_run for page in PAGES for block in blocks(page) if block.not_run} == NOT_RUN
    assert sum(bool(block.not_run) for page in PAGES for block in blocks(page)) == len(NOT_RUN)


def test_the_way_to_each_recipe_is_in_the_list() -> None:
    listed = (DOCS / "recipes" / "README.md").read_text("utf-8")
    for page in (DOCS / "recipes").glob("*.md"):
        assert f"({page.name})" in listed or page.name == "README.md", page.name


# ---- the terminal


def test_a_command_goes_on_behind_a_backslash() -> None:
    assert commands("$ one \\\n  two\nsaid\n$ three\n") == [("one \\\n  two", "said\n"), ("three", "")]


@pytest.mark.parametrize(
    ("expected", "said", "same"),
    [
        ("", "whatever\n", True),
        ("1 record at 14:47:19.665\n", "1 record at 20:00:00.001\n", True),
        ("1 record\n", "2 records\n", False),
        ("...\nlast\n", "first\nsecond\nlast\n", True),
        ("...\nlast\n", "first\nlast but one\n", False),
        ("open for 662 ms\n", "open for 1 min 3 s\n", True),
        ("started ... control=x ...\n", "started  a=1 control=x b=2\n", True),
        ("started ... control=x ...\n", "started  a=1 control=y b=2\n", False),
    ],
)
def test_what_differs_from_run_to_run_is_passed_over(expected: str, said: str, same: bool) -> None:
    assert matches(expected, said) is same


def test_a_package_that_is_not_there_is_missed() -> None:
    check_is_installed("odradek[spark]")
    with pytest.raises(ModuleNotFoundError):
        check_is_installed("odradek-of-another-name")


def test_a_block_knows_its_file_and_its_line() -> None:
    [block] = [block for block in blocks("docs/recipes/pytest.md") if block.title]
    assert (block.title, block.language) == ("test_payments.py", "python")
    page = Path(ROOT, block.page).read_text("utf-8").splitlines()
    assert page[block.line - 1].startswith("```python")
