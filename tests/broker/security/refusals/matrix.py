"""The authorization matrix: each request in each version by each principal, and a compact file format for the
responses.

In one case and version, the principals that get the same response are grouped. Consecutive versions in which all principals
get the same responses are grouped too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.broker.security.refusals import client_cases, cluster_cases, data_cases, group_cases
from tests.broker.security.refusals.cases import CASES, Case
from tests.broker.security.refusals.normal import Normal
from tests.broker.security.refusals.principals import ADMIN, ANONYMOUS, PRINCIPALS
from tests.broker.security.refusals.world import World

assert all((client_cases, cluster_cases, data_cases, group_cases))

RECORDED: Final = Path(__file__).parent / "recorded"
OTHERS: Final = "all others"
ASKERS: Final = (ADMIN, ANONYMOUS, *PRINCIPALS)


class Row(NamedTuple):
    case: Case
    version: int
    user: str


def rows(cases: Iterable[Case] = CASES) -> Iterator[Row]:
    """Yield all rows of the authorization matrix: case, version and principal."""
    for case in cases:
        for version in case.versions:
            for user in ASKERS:
                yield Row(case, version, user)


def ask(world: World, row: Row) -> Any:
    """Send the request of a row and return its normalised response."""
    case, version, user = row
    if case.prepare is not None:
        case.prepare(world)
    body = case.body(world, version)
    names = {topic_id: name for name, topic_id in world.topic_ids.items()}
    return Normal(user, names, repr(body)).answer(case.api, world.side.ask(user, case.api, version, body))


# -- the recorded responses ------------------------------------------------------------------------------------------


Answers = dict[tuple[str, int, str], Any]
"""Responses by case, version and principal."""


def save(answers: Answers, folder: Path = RECORDED) -> None:
    """Write the responses, one file for each API."""
    folder.mkdir(exist_ok=True)
    apis: dict[str, dict[str, Any]] = {}
    for case in CASES:
        blocks: list[dict[str, Any]] = []
        for version in case.versions:
            groups = _grouped(answers, case, version)
            if blocks and blocks[-1]["answers"] == groups:
                blocks[-1]["versions"].append(version)
            else:
                blocks.append({"versions": [version], "answers": groups})
        apis.setdefault(case.api, {})[case.label] = blocks
    for api, labels in apis.items():
        (folder / f"{api}.json").write_text(_text(labels))


def _grouped(answers: Answers, case: Case, version: int) -> list[list[Any]]:
    """[principals, their common response] pairs of a case in one version, in the order of the principals. The
    largest group is written as ``OTHERS``."""
    groups: dict[str, tuple[list[str], Any]] = {}
    for user in ASKERS:
        answer = answers[case.id, version, user]
        groups.setdefault(json.dumps(answer, sort_keys=True), ([], answer))[0].append(user)
    most = max(groups.values(), key=lambda group: len(group[0]))
    return [[OTHERS if users is most[0] else " ".join(users), answer] for users, answer in groups.values()]


def _text(labels: dict[str, Any]) -> str:
    """The JSON of an API's responses, one response in a line."""
    told = []
    for label, blocks in labels.items():
        parts = []
        for block in blocks:
            lines = ",\n".join("   " + json.dumps(row, ensure_ascii=False) for row in block["answers"])
            parts.append(f'  {{"versions": {json.dumps(block["versions"])}, "answers": [\n{lines}\n  ]}}')
        told.append(f" {json.dumps(label, ensure_ascii=False)}: [\n" + ",\n".join(parts) + "\n ]")
    return "{\n" + ",\n".join(told) + "\n}\n"


class Recorded:
    """Kafka's recorded responses."""

    def __init__(self, folder: Path = RECORDED) -> None:
        self._apis = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}

    def answer(self, row: Row) -> Any:
        answers = dict(self._by_user(row.case, row.version))
        return answers[row.user] if row.user in answers else answers[OTHERS]

    def _by_user(self, case: Case, version: int) -> Iterator[tuple[str, Any]]:
        for users, answer in self._answers(case, version):
            for user in [OTHERS] if users == OTHERS else users.split():
                yield user, answer

    def _answers(self, case: Case, version: int) -> list[list[Any]]:
        block = next(each for each in self._apis[case.api][case.label] if version in each["versions"])
        answers: list[list[Any]] = block["answers"]
        return answers

    def _one_each(self, case: Case, version: int) -> Iterator[str]:
        named = {user for user, _ in self._by_user(case, version)}
        for users, _ in self._answers(case, version):
            yield next(user for user in ASKERS if user not in named) if users == OTHERS else users.split()[0]

    def chosen(self) -> Iterator[Row]:
        """Yield the rows that every test run plays: all principals in the last version of a case, and in the other versions
        one principal for each different response."""
        for row in self.one_each():
            if row.version != row.case.versions[-1]:
                yield row
        yield from (row for row in rows() if row.version == row.case.versions[-1])

    def one_each(self) -> Iterator[Row]:
        """For each case and version yield one row for each different response."""
        for case in CASES:
            for version in case.versions:
                yield from (Row(case, version, user) for user in self._one_each(case, version))
