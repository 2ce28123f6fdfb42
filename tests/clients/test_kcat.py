"""kcat, on Debian's librdkafka, has the same output with our broker as with Apache Kafka."""

from __future__ import annotations

import pytest

from tests.clients.kcat_session import RECORDED, session
from tests.support.broker import StartBroker

pytestmark = [pytest.mark.foreign, pytest.mark.client("kcat"), pytest.mark.kcat]


@pytest.mark.feature(
    "produce and read",
    "topics and settings",
    "partitioner",
    "transactions",
    "read_committed",
    "classic group",
)
def test_it_prints_what_it_prints_with_apache_kafka(start_broker: StartBroker):
    """kcat prints the output that `python -m tests.clients.kcat_session` has recorded with Apache Kafka."""
    broker = start_broker(settings={"auto.create.topics.enable": "false"})
    assert session(broker.bootstrap).splitlines() == RECORDED.read_text().splitlines()
