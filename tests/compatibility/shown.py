"""Collects the results of this checkout's tests in ``results/shown.json``, from which the page is generated.

    make test more clients                        # writes results to .cache/compatibility
    python -m tests.compatibility.shown           # shows differences from the stored results, and fails if there are any
    python -m tests.compatibility.shown --write   # stores the results, and generates the page
    python -m tests.compatibility.shown --page    # generates the page from the stored results

The stored result is used for a test that was left out because a program is not installed.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.kept import text_of
from tests.compatibility import page
from tests.compatibility.exchanges import ByVersion, sum_of, to_json
from tests.compatibility.verdicts import FOLDER, LEFT_OUT

KEPT: Final = Path(__file__).parent / "results" / "shown.json"

Line = dict[str, Any]


class Shown(NamedTuple):
    """The results of our broker that the compatibility page shows."""

    exchanges: ByVersion
    clients: dict[str, dict[str, str]]
    """Client -> feature -> "passed" or "failed"."""
    tools: dict[str, dict[str, int]]
    """Tool -> "passed" or "failed" -> number of tests with this outcome."""

    @property
    def text(self) -> str:
        return text_of(self._asdict() | {"exchanges": to_json(self.exchanges)})


def parse(text: str) -> Shown:
    kept = json.loads(text)
    return Shown(sum_of([kept["exchanges"]]), kept["clients"], kept["tools"])


def kept() -> Shown:
    return parse(KEPT.read_text())


def lines_of_tests() -> list[Line]:
    """The last result of each test for each of its subjects (a feature of a client, or a tool of Kafka)."""
    last: dict[tuple[Any, ...], Line] = {}
    for file in sorted(FOLDER.glob("*.jsonl"), key=lambda file: file.stat().st_mtime):
        for text in file.read_text().splitlines():
            line = json.loads(text)
            last[tuple(line.get(key) for key in ("story", "client", "feature", "tool", "test"))] = line
    return list(last.values())


def shown_by(lines: Iterable[Line], before: Shown) -> Shown:
    """Results to show for these tests. If tests of a feature or tool were left out, its result in ``before`` is used."""
    features: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    tools: dict[str, list[str]] = defaultdict(list)
    stories: list[dict[str, list[Any]]] = []
    for line in lines:
        if "client" in line:
            features[line["client"]][line["feature"]].add(line["outcome"])
        elif "tool" in line:
            tools[line["tool"]].append(line["outcome"])
        else:
            stories.append(line["exchanges"])
    return Shown(
        sum_of(stories),
        {
            client: _verdicts(of_client, before.clients.get(client, {}))
            for client, of_client in sorted(features.items())
        },
        {tool: _numbers(outcomes, before.tools.get(tool)) for tool, outcomes in sorted(tools.items())},
    )


def _verdicts(found: dict[str, set[str]], before: dict[str, str]) -> dict[str, str]:
    """Outcome of each feature: "passed" only if all of its tests passed."""
    verdicts = {}
    for feature, outcomes in sorted(found.items()):
        if LEFT_OUT not in outcomes:
            verdicts[feature] = "passed" if outcomes == {"passed"} else "failed"
        elif feature in before:
            verdicts[feature] = before[feature]
    return verdicts


def _numbers(outcomes: list[str], before: dict[str, int] | None) -> dict[str, int]:
    if LEFT_OUT in outcomes and before is not None:
        return before
    passed = outcomes.count("passed")
    return {"passed": passed, "failed": len(outcomes) - passed}


def main(arguments: list[str]) -> int:
    if "--page" in arguments:
        page.PAGE.write_text(page.page(kept()))
        return 0
    now = shown_by(lines_of_tests(), kept() if KEPT.exists() else Shown({}, {}, {}))
    if "--write" in arguments:
        KEPT.write_text(now.text)
        page.PAGE.write_text(page.page(now))
        return 0
    there = KEPT.read_text()
    difference = difflib.unified_diff(
        there.splitlines(), now.text.splitlines(), str(KEPT), "the tests", lineterm=""
    )
    print("\n".join(difference) or "docs/compatibility.md says what the tests have shown")
    return int(there != now.text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
