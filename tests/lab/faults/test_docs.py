"""Every rule in docs/faults.md is valid, the page shows every action and point, and its bounds are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from broker.injection.points import POINTS
from lab.faults import ACTIONS, parse_rule
from lab.faults.engine import RULES_MAX
from lab.faults.held_items import HELD_BYTES_MAX, HELD_MAX
from lab.faults.text import CONDITIONS, MATCHERS
from tests.lab.faults.json_rules import rule_from_json

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
README = (ROOT / "lab" / "faults" / "README.md").read_text("utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


LINES = [line for block in blocks("fault") for line in block.splitlines()]


@pytest.mark.parametrize("line", LINES)
def test_each_line_is_a_rule(line: str) -> None:
    parse_rule(line)


@pytest.mark.parametrize("form", blocks("json"))
def test_each_json_form_is_a_rule(form: str) -> None:
    rule_from_json(json.loads(form))


def test_every_action_has_an_example() -> None:
    assert {parse_rule(line).action.do for line in LINES} == set(ACTIONS)


def test_every_word_is_explained() -> None:
    for word in (*POINTS, *MATCHERS):
        assert f"`{word}`" in PAGE, word
    for word in CONDITIONS:
        assert re.search(rf"`[^`]*\b{word}=", PAGE), word


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"at most {HELD_MAX} requests and steps, and {HELD_BYTES_MAX >> 20} MiB" in PAGE
    assert f"at most {RULES_MAX} rules" in PAGE


def test_the_rules_in_the_readme_are_rules() -> None:
    found = re.findall(r'parse_rule\("(.*?)"\)', README)
    assert found
    for line in found:
        parse_rule(line)
