"""The documentation lists the faults that a certificate needs."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.certify.lints import DOCS
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.requirements import ELSEWHERE, NEEDED, WAITS_S

PAGE = (Path(__file__).parents[3] / DOCS).read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its header."""
    table = PAGE.split(f"{heading}\n", 1)[1].split("\n| ", 1)[1].split("\n\n", 1)[0]
    return [[each.strip() for each in line.strip("| ").split("|")] for line in f"| {table}".splitlines()[2:]]


def test_the_page_has_each_request_and_its_faults() -> None:
    said = {
        request: re.findall(r"`([a-z-]+)`", faults) for request, faults in rows("## What a certificate needs")
    }
    assert said.pop("Fetch") == [*NEEDED["Fetch"], *ELSEWHERE]
    assert said == {request: list(faults) for request, faults in NEEDED.items() if request != "Fetch"}


def test_each_fault_that_is_needed_is_one() -> None:
    assert {name for names in (*NEEDED.values(), ELSEWHERE) for name in names} <= BY_NAME.keys()


def test_the_page_has_how_long_clients_wait() -> None:
    said = {row[0].strip("`"): float(row[1].removesuffix(" s")) for row in rows("### How long clients wait")}
    assert said == WAITS_S
