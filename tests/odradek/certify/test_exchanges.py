"""The exchanges that `odradek.certify.exchanges` reads from a trace."""

from __future__ import annotations

from odradek.certify.exchanges import time_outs_s
from tests.odradek.certify.traces import entry, init, trace


def test_what_is_left_behind_lasts_as_long_as_the_clients_have_asked_for() -> None:
    joins = [entry("JoinGroup", {"group_id": "g", "session_timeout_ms": each}) for each in (6_000, 10_000)]
    assert time_outs_s(trace(*joins, init("a", timeout_ms=30_000))) == 40.0
    assert time_outs_s(trace(entry("ConsumerGroupHeartbeat", {"group_id": "g"}))) == 45.0
    assert time_outs_s(trace(entry("InitProducerId", {"transaction_timeout_ms": 2**31 - 1}))) == 0.0


def test_our_own_tools_are_never_the_job() -> None:
    ours = [entry("Produce", client_id=each) for each in ("odradek", "odradek-proxy")]
    sink = entry("Produce", client_id="odradek-spark")
    assert [each.client_id for each in trace(*ours, sink)] == ["odradek-spark"]
