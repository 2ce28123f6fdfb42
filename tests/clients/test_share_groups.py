"""Share consumers of three clients get from our broker what they get from Apache Kafka (KIP-932)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pytest

import odradek
from tests.clients.share_session import BEYOND, RECORDED, SCENARIOS, SETTINGS, told
from tests.scenarios.conftest import named

MARKS: Final[Mapping[str, Sequence[pytest.MarkDecorator]]] = {
    "confluent": (),
    "java": (pytest.mark.java, pytest.mark.foreign),
    "franz-go": (pytest.mark.foreign,),
}
LOCK_MS: Final = 20_000
"""Two of them are shorter than the session timeout of a member."""


@pytest.fixture(scope="module")
def share_broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.mark.feature("share groups")
@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        named(client, scenario, marks=marks)
        for client, marks in MARKS.items()
        for scenario in SCENARIOS
        if scenario not in BEYOND[client]
    ],
)
def test_members_get_what_apache_kafka_gives_them(share_broker: odradek.Broker, client: str, scenario: str):
    """The lines are those that `python -m tests.clients.share_session` has recorded with Apache Kafka."""

    def pass_time(ms: int) -> None:
        share_broker.clock.advance(ms, only="groups")

    recorded = json.loads(RECORDED.read_text())[client][scenario]
    assert told(client, scenario, share_broker.bootstrap_servers, LOCK_MS, pass_time) == recorded
