"""The input of a job is written to the broker as the lines of its file describe it."""

from __future__ import annotations

import pytest

from odradek.broker import Broker
from odradek.certify.runs.seeding import write
from odradek.certify.workload import Seed
from odradek.errors import OdradekError


def test_records_commit_and_abort_where_they_stand() -> None:
    seeds = [
        Seed("in", "a", "k", 1),
        Seed("other", None, "k"),
        Seed("in", "b", None, 1, aborted=True),
        Seed("in", "c", None, 1),
    ]
    with Broker(topics=["in:2", "other:1"]) as broker:
        write(broker.bootstrap_servers, seeds)
        written = [
            (each.topic, each.partition, each.key, each.value, each.outcome)
            for topic in ("in", "other")
            for each in broker.records(topic, "read_uncommitted")
        ]
    assert written == [
        ("in", 1, "k", "a", "committed"),
        ("in", 1, None, "b", "aborted"),
        ("in", 1, None, "c", "committed"),
        ("other", 0, "k", None, "committed"),
    ]


def test_an_unreachable_broker_is_named() -> None:
    with pytest.raises(OdradekError, match=r"the input cannot be written: .*127\.0\.0\.1:1"):
        write("127.0.0.1:1", [Seed("in", "a")])
