"""Our broker refuses the requests that Apache Kafka refuses, in the same place, with the same messages and names.

`python -m tests.broker.security.refusals.record` records Kafka's responses again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest

from broker.requests.served import SERVED
from tests.broker.security.refusals import stories
from tests.broker.security.refusals.cases import CASES
from tests.broker.security.refusals.matrix import ASKERS, Recorded, Row, ask, rows
from tests.broker.security.refusals.ours import ours
from tests.broker.security.refusals.principals import ADMIN
from tests.broker.security.refusals.story import STORIES, play, recorded_stories
from tests.broker.security.refusals.world import World

assert stories

KAFKA = Recorded()
APIS = list(dict.fromkeys(case.api for case in CASES))
"""In the order of the recording: later cases see the groups and topics that earlier ones have created."""
BEFORE_THERE_IS_A_PRINCIPAL = {"sasl_handshake", "sasl_authenticate"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ours(tmp_path_factory.mktemp("refusals")) as side:
        yield World(side)


def differences(world: World, asked: Iterable[Row]) -> list[str]:
    found = []
    for row in asked:
        mine, theirs = ask(world, row), KAFKA.answer(row)
        if mine != theirs:
            where = f"{row.case.id} v{row.version} {row.user}"
            found.append(f"{where}:\n  Kafka {theirs}\n  ours  {mine}")
    return found


@pytest.mark.parametrize("api", APIS)
def test_as_kafka(api: str, world: World) -> None:
    found = differences(world, (row for row in KAFKA.chosen() if row.case.api == api))
    assert not found, "\n".join(found[:5])


@pytest.mark.more
@pytest.mark.parametrize("api", APIS)
def test_all_as_kafka(api: str, world: World) -> None:
    found = differences(world, rows(case for case in CASES if case.api == api))
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("name", STORIES)
def test_story_as_kafka(name: str, world: World) -> None:
    assert play(world, name) == recorded_stories()[name]


def test_every_api_is_asked_in_every_version() -> None:
    asked: dict[str, set[int]] = {}
    for case in CASES:
        asked.setdefault(case.api, set()).update(case.versions)
    served = {name: set(versions) for name, versions, _, _ in SERVED.values()}
    for name in BEFORE_THERE_IS_A_PRINCIPAL:
        del served[name]
    assert asked == served


def test_no_two_principals_are_told_the_same_of_everything() -> None:
    """Any two principals get different responses somewhere in the matrix, so the matrix covers each permission. The
    exceptions are the two permissions for tokens, either of which is enough."""
    told = {user: tuple(repr(KAFKA.answer(row)) for row in rows() if row.user == user) for user in ASKERS}
    same = [users for users in _by_value(told).values() if len(users) > 1]
    assert same == [[ADMIN, "all", "no-delegation-token-describe", "no-user-describe-tokens"]]


def _by_value(told: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, ...], list[str]]:
    users: dict[tuple[str, ...], list[str]] = {}
    for user, answers in told.items():
        users.setdefault(answers, []).append(user)
    return users
