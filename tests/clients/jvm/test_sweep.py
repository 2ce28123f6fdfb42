"""Each method of AdminClient, and the pages of kafka-ui: the same outcome as with Apache Kafka."""

from __future__ import annotations

import pytest

from tests.clients.jvm import sweep
from tests.support.broker import Broker
from tests.support.deadlines import LONG_TEST_S

UI = "kafka-ui"
NO_STREAMS_GROUPS = "streams groups are not built: the broker announces none of their APIs"
UNSUPPORTED = {"outcome": "UnsupportedVersionException"}
DIFFERENCES = {
    "describeStreamsGroups": (NO_STREAMS_GROUPS, UNSUPPORTED),
}
"""AdminClient methods whose outcome differs from Apache Kafka's: the reason, and our outcome."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> sweep.Outcomes:
    with Broker(tmp_path_factory.mktemp("sweep"), settings=sweep.SETTINGS) as broker:
        return sweep.sweep(broker.bootstrap, 0)


def expected() -> sweep.Outcomes:
    kafkas = sweep.recorded()
    for call, (_, outcome) in DIFFERENCES.items():
        assert kafkas[call] != outcome, f"{call} does not differ"
    return kafkas | {call: outcome for call, (_, outcome) in DIFFERENCES.items()}


@pytest.mark.foreign
@pytest.mark.client("Java AdminClient")
@pytest.mark.feature("administration")
def test_each_admin_method_has_the_same_outcome_as_with_kafka(ours: sweep.Outcomes):
    assert list(ours) == list(expected())
    assert {call: outcome for call, outcome in ours.items() if not call.startswith(UI)} == {
        call: outcome for call, outcome in expected().items() if not call.startswith(UI)
    }


@pytest.mark.foreign
@pytest.mark.client("kafka-ui (the calls of its pages)")
@pytest.mark.feature("administration")
def test_the_pages_of_kafka_ui_have_the_same_outcome_as_with_kafka(ours: sweep.Outcomes):
    pages = {call: outcome for call, outcome in expected().items() if call.startswith(UI)}
    assert len(pages) > 10
    assert {call: outcome for call, outcome in ours.items() if call.startswith(UI)} == pages


@pytest.mark.slow
@pytest.mark.timeout(LONG_TEST_S)
def test_kafka_has_the_recorded_outcomes():
    assert sweep.ask_kafka() == sweep.recorded()
