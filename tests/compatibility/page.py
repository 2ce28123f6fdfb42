"""Generates docs/compatibility.md from the stored test results (`tests.compatibility.shown` runs it).

It also reads results that are measured seldom: ``results/kfake.json`` (`tests.compatibility.kfake`),
``results/published.json`` (`tests.clients.published`) and ``unavailable.json`` (clients that could not be installed).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from broker.requests.api import discover
from protocol.messages.index import APIS as APIS_OF_KAFKA
from tests.compatibility import versions
from tests.compatibility.exchanges import ByVersion, Exchanges, sum_of
from tests.compatibility.verdicts import FEATURES
from tests.differential import runner
from tests.support.java import RECORDED_VERSION

if TYPE_CHECKING:
    from tests.compatibility.shown import Shown

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "docs/compatibility.md"
KFAKE: Final = HERE / "results" / "kfake.json"
PUBLISHED: Final = HERE / "results" / "published.json"
UNAVAILABLE: Final = HERE / "unavailable.json"

TEMPLATE: Final = "page.j2"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- parts of the page


def apis(ours: ByVersion, kfake: ByVersion) -> str:
    rows = []
    for key, api in sorted(discover().items()):
        versions_of = {version: ours.get((api.name, version), Exchanges()) for version in api.announced}
        different = [f"v{version}" for version, one in versions_of.items() if one.differ]
        reasons = sorted({row for one in versions_of.values() for row in one.rows})
        total = total_of(versions_of.values())
        peer = total_of(one for (name, _), one in kfake.items() if name == api.name)
        row = [str(key), api.name, f"{api.announced[0]} to {api.announced[-1]}", str(total.compared)]
        row.append(f"{', '.join(different)}: {', '.join(reasons)}" if different else "")
        row.append(
            f"{_percent(peer, peer.differ_in_error)}, {_percent(peer, peer.differ)}" if peer.compared else ""
        )
        rows.append(row)
    return table(["key", "API", "versions", "exchanges", "differs", "kfake"], rows)


def not_announced() -> str:
    """Names of the APIs that Kafka announces and this broker does not."""
    kafka = runner.load("api-versions")["every_version"][-1]["answer"]["api_keys"]
    missing = sorted({int(key) for key in kafka} - set(discover()))
    return ", ".join(f"{APIS_OF_KAFKA[key][0]} ({key})" for key in missing)


def total_of(found: Iterable[Exchanges]) -> Exchanges:
    total = Exchanges()
    for one in found:
        total.add(one)
    return total


def _percent(peer: Exchanges, differ: int) -> str:
    return f"{(peer.compared - differ) * 100 // peer.compared} %"


def clients(verdicts: Mapping[str, Mapping[str, str]]) -> str:
    """The table of clients. Features are rows: their names are long, and there are more features than clients."""
    passed = {
        name: {feature for feature, verdict in of_client.items() if verdict == "passed"}
        for name, of_client in verdicts.items()
    }
    features = [feature for feature in FEATURES if any(feature in each for each in passed.values())]
    names = sorted(passed, key=str.lower)
    return table(
        ["", *(f"{name} {versions.of_client(name)}".strip() for name in names)],
        [[feature, *("✓" if feature in passed[name] else "" for name in names)] for feature in features],
    )


def tools(numbers: Mapping[str, Mapping[str, int]]) -> str:
    rows = [[f"`{name}`", str(each["passed"]), str(each["failed"])] for name, each in sorted(numbers.items())]
    return table(["tool", "stories as on Kafka", "failed"], rows)


def published() -> str:
    """Numbers of tests for each suite, and the tests whose outcome differs from Apache Kafka's, by reason.

    The tests of a suite that was not run with Apache Kafka are compared with "pass".
    """
    kept = json.loads(PUBLISHED.read_text())
    other: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in kept["tests"]:
        if each["kafka"] != each["ours"]:
            outcome = f"{each['kafka']} on Kafka, {each['ours']} here. {each['reason']}"
            other[each["suite"], outcome].append(f"`{each['test']}`")
    rows = []
    for suite, facts in sorted(kept["suites"].items()):
        different = sum(len(tests) for (of_suite, _), tests in other.items() if of_suite == suite)
        neither = facts["tests"] - facts["pass"] - different
        compared = (different, neither) if facts["kafka"] else ("", "")
        numbers = (facts["tests"], facts["pass"], *compared)
        rows.append([suite, facts["version"], facts["kafka"] or "not run", *map(str, numbers)])
    header = ["suite", "version", "Kafka", "tests", "pass", "another outcome here", "pass on neither"]
    text = table(header, rows)
    lines = [f"- {suite}, {', '.join(tests)}: {outcome}" for (suite, outcome), tests in other.items()]
    return "\n\n".join([text, *(["\n".join(lines)] if lines else [])])


def unavailable() -> str:
    rows = [
        [each["client"], each["tried"], f"`{each['error']}`"] for each in json.loads(UNAVAILABLE.read_text())
    ]
    return table(["client", "tried", "error"], rows)


def page(ours: Shown) -> str:
    kept = json.loads(KFAKE.read_text())
    kfake = sum_of([kept["exchanges"]])
    profiles = [f"`{profile}`" for profile in kept["profiles"]]
    environment = Environment(
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    return environment.get_template(TEMPLATE).render(
        apis=apis(ours.exchanges, kfake),
        clients=clients(ours.clients),
        kafka=RECORDED_VERSION,
        kfake=total_of(kfake.values()),
        kfake_version=kept["version"],
        not_announced=not_announced(),
        ours=total_of(ours.exchanges.values()),
        profiles=" and ".join(profiles),
        published=published(),
        tools=tools(ours.tools),
        unavailable=unavailable(),
    )
