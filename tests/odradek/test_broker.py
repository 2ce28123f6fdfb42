"""``odradek.Broker``: a broker in a process of its own, as Python objects."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

import odradek
from odradek.broker import seed_arguments
from odradek.control_client import ControlClient
from odradek.handle import Handle
from odradek.remote import ACTION, MATCH, WHEN, Remote
from tests.support.clients import PATIENCE, eventually
from tests.support.deadlines import HANG_S, Stopwatch

WEEK_MS = 7 * 86_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(topics=["orders:2"]) as broker:
        yield broker


def producer_of(broker: odradek.Broker, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **PATIENCE}
    )
    producer.init_transactions(HANG_S)
    return producer


def commit(producer: Producer, partition: int = 0) -> None:
    producer.begin_transaction()
    producer.produce("orders", b"value", partition=partition)
    producer.commit_transaction(HANG_S)


# -- start and stop


def test_what_is_committed_survives_a_kill_and_is_there_at_the_same_addresses(tmp_path: Path) -> None:
    with odradek.Broker(topics={"orders": 2}, data_dir=tmp_path / "data") as broker:
        commit(producer_of(broker, "payments"))
        addresses = broker.bootstrap_servers, broker.control_url
        with broker.faults.add("EndTxn -> drop") as old, broker.trace:
            broker.kill()
            with pytest.raises(odradek.ControlUnreachable, match="no control port at"):
                broker.faults.list()
        broker.restart()
        with broker.faults.add("Produce -> drop") as new:
            assert new.id == 1
            with pytest.raises(odradek.ControlUnreachable, match="process of this object has ended"):
                old.remove()  # otherwise it would remove a new rule with the same id
            assert [rule.text for rule in broker.faults] == ["Produce -> drop"]
        assert (broker.bootstrap_servers, broker.control_url) == addresses
        assert broker.faults.list() == []  # rules end with their process
        assert broker.transactions["payments"].state == "CompleteCommit"
    assert (tmp_path / "data").is_dir()


def test_a_broker_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(odradek.BrokerFailed, match="nonsense"),
        odradek.Broker(settings={"num.partitions": "nonsense"}),
    ):
        pass


async def test_it_does_not_stop_the_loop_that_it_is_started_on() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    turning = asyncio.create_task(turn())
    async with odradek.Broker() as broker:
        assert turns > 5
        assert broker.bootstrap_servers
    turning.cancel()


def test_the_levels_of_features_are_chosen() -> None:
    levels = {"eligible.leader.replicas.version": 0, "group.version": 0, "share.version": 0}
    with odradek.Broker(transaction_version=1, features=levels) as broker:
        features = ControlClient(broker.control_url).get("/v1/cluster")["features"]
        assert features == {"metadata.version": features["metadata.version"], "transaction.version": 1}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_version_of_transactions_is_chosen(version: int) -> None:
    with odradek.Broker(transaction_version=version) as broker:
        features = ControlClient(broker.control_url).get("/v1/cluster")["features"]
        assert features.get("transaction.version", 0) == version


@pytest.mark.parametrize(
    "options",
    [{"environment": {"ODRADEK_CONTROL_TOKEN": "secret"}}, {"settings": {"odradek.control.token": "secret"}}],
)
def test_a_token_is_required_and_sent(options: dict[str, Any]) -> None:
    with odradek.Broker(**options) as broker:
        assert broker.faults.list() == []
        with pytest.raises(odradek.ControlRefused, match="requires its token") as refused:
            odradek.connect(broker.control_url).faults.list()
        assert refused.value.status == 401
        assert odradek.connect(broker.control_url, "secret").faults.list() == []


# -- faults


def test_the_words_of_a_rule_are_those_of_the_broker(broker: odradek.Broker) -> None:
    schemas = ControlClient(broker.control_url).get("/openapi.json")["components"]["schemas"]
    for words, schema in ((MATCH, "MatchForm"), (WHEN, "WhenForm"), (ACTION, "ActionForm")):
        assert set(schemas[schema]["properties"]) == words


def test_a_rule_is_added_in_words_or_as_text(broker: odradek.Broker) -> None:
    with (
        broker.faults.add("EndTxn", transactional_id="a b", nth=2, do="lose-answer", silent=True) as one,
        broker.faults.add(one.text) as other,
        broker.faults.add(do="slow-disk", delay="5ms", node=1, expires=timedelta(minutes=1)) as slow,
    ):
        assert one.text == other.text == "EndTxn 'transactional_id=a b' nth=2 -> lose-answer silent"
        assert slow.text == "slow-disk delay=5ms node=1 expires=1m"
        assert [rule.id for rule in broker.faults] == [one.id, other.id, slow.id]
        with pytest.raises(odradek.ControlRefused, match="there is no node 2: this cluster has node 1 only"):
            broker.faults.add(do="cut", nodes=(1, 2), one_way=True, expires_ms=60_000)
    assert broker.faults.list() == []


def test_an_unknown_keyword_of_a_rule_is_an_error_before_any_request(broker: odradek.Broker) -> None:
    with pytest.raises(
        TypeError, match=r"^a rule has no keyword 'wrong'; there is acl, acquired, after, by, client_id"
    ):
        broker.faults.add("EndTxn", wrong=1, do="drop")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"^a rule has no keyword 'trnsactional_id'; did you mean transactional_id\?$"
    ):
        broker.faults.add("EndTxn", trnsactional_id="a", do="drop")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="needs an action"):
        broker.faults.add("EndTxn", nth=2)
    with pytest.raises(odradek.ControlRefused, match="'drp' is not known; did you mean drop") as refused:
        broker.faults.add("EndTxn", do="drp")  # type: ignore[arg-type]
    assert refused.value.status == 400


def state_of(broker: odradek.Broker, transactional_id: str) -> str:
    return broker.transactions[transactional_id].state


def test_what_is_held_goes_on_when_released(broker: odradek.Broker) -> None:
    producer = producer_of(broker, "held")
    with broker.faults.add("EndTxn", transactional_id="held", nth=1, do="hold") as rule:
        committing = threading.Thread(target=commit, args=(producer,))
        committing.start()
        assert rule.wait(1, timeout_s=HANG_S) is rule
        assert [each["at"] for each in rule.held] == ["EndTxn"]
        assert [each["transactional_id"] for each in rule.held] == ["held"]
        assert state_of(broker, "held") == "Ongoing"
        assert rule.release(transactional_id="other") == 0
        assert rule.release(transactional_id="held", node=1) == 1
        assert broker.transactions.wait("held", timeout_s=HANG_S).state == "CompleteCommit"
        committing.join(HANG_S)
        assert [each["errors"] for each in rule.released] == [["NONE"]]
        assert (rule.hits, rule.held, rule.spent) == (1, [], True)
    assert state_of(broker, "held") == "CompleteCommit"
    with pytest.raises(
        odradek.TransactionNotReached, match=r"held: CompleteCommit, not Ongoing,Dead, after 0.1 s"
    ):
        broker.transactions.wait("held", ["Ongoing", "Dead"], timeout_s=0.1)
    with pytest.raises(
        odradek.TransactionNotReached,
        match=r"^heldd: unknown, not CompleteCommit, after 0 s; known: .*; did you mean held\?$",
    ):
        broker.transactions.wait("heldd", timeout_s=0)
    rule.remove()  # removing it again is no error
    with pytest.raises(odradek.NotFound, match=f"there is no rule {rule.id}"):
        _ = rule.hits


def test_a_wait_that_times_out_reports_the_hits_so_far(broker: odradek.Broker) -> None:
    with (
        broker.faults.add("EndTxn -> drop") as rule,
        pytest.raises(odradek.FaultNotHit, match=r"EndTxn -> drop: 0 of 3 hits after 0.01 s \(0 matched\)"),
    ):
        rule.wait(3, timeout_s=0.01)


def test_a_wait_that_times_out_reports_similar_requests(broker: odradek.Broker) -> None:
    commit(producer_of(broker, "instead"))

    def said(rule: str) -> str:
        with broker.faults.add(rule) as added, pytest.raises(odradek.FaultNotHit) as error:
            added.wait(timeout_s=0)
        return str(error.value).partition(" (0 matched)")[2]

    assert said("EndTxn -> drop") == ""
    assert said("EndTxn transactional_id=insted -> drop").startswith("; no coordinator knows insted, known: ")
    assert said("EndTxn transactional_id=insted -> drop").endswith("; did you mean instead?")
    with broker.trace:
        commit(producer_of(broker, "instead"))
        assert said("EndTxn transactional_id=insted client_id=x -> drop") == (
            "; the trace has 1 EndTxn, client_id rdkafka, transactional_id instead; did you mean instead?"
        )
        assert said("OffsetDelete -> drop") == "; the trace has no OffsetDelete"
        assert said("txn.marker topic=x -> hold") == ""


def test_a_wait_is_as_long_as_it_says_also_when_the_broker_s_time_is_moved(broker: odradek.Broker) -> None:
    with broker.faults.add("EndTxn -> drop") as rule:
        watch = Stopwatch()
        moving = threading.Timer(0.1, broker.clock.advance, ("1h", "requests"))
        moving.start()
        with pytest.raises(odradek.FaultNotHit):
            rule.wait(timeout_s=0.5)
        assert watch.has_run_s(0.5)
        moving.join()


def test_seed_is_a_file_or_a_list(tmp_path: Path) -> None:
    file = tmp_path / "seed.jsonl"
    assert seed_arguments(file, tmp_path) == seed_arguments(str(file), tmp_path) == ["--seed", str(file)]
    assert seed_arguments([], tmp_path) == []
    assert not file.exists()
    records: Iterator[dict[str, object]] = iter(
        [{"topic": "orders", "value": "a\n"}, {"topic": "orders", "value": None}]
    )
    assert seed_arguments(records, tmp_path) == ["--seed", str(file)]
    assert file.read_text("utf-8") == (
        '{"topic": "orders", "value": "a\\n"}\n{"topic": "orders", "value": null}'
    )


# -- time


def test_time_is_moved_by_words_milliseconds_or_a_timedelta() -> None:
    with odradek.Broker() as broker:
        before = broker.clock.now
        broker.clock.advance("7d")
        assert timedelta(days=7) <= broker.clock.now - before < timedelta(days=7, minutes=1)
        broker.clock.advance(1000, only="groups")
        broker.clock.advance(timedelta(seconds=1), only=["groups", "retention"])
        ahead = broker.clock.ahead_ms
        assert (ahead["transactions"], ahead["groups"], ahead["retention"]) == (WEEK_MS, 2000, 1000)
        with pytest.raises(odradek.ControlRefused, match="not a duration"):
            broker.clock.advance("soon")


def test_an_open_transaction_is_aborted_by_advancing_the_clock() -> None:
    with odradek.Broker(topics=["orders:1"]) as broker:
        producer = producer_of(broker, "left")
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(HANG_S)
        broker.clock.advance("2m")
        assert broker.transactions["left"].state == "CompleteAbort"
        with pytest.raises(KafkaException, match=r"fenced|epoch"):
            producer.commit_transaction(HANG_S)


# -- trace and transactions


def test_the_trace_is_read_followed_and_captured(broker: odradek.Broker, tmp_path: Path) -> None:
    producer = producer_of(broker, "traced")
    with broker.trace as trace, trace.follow(api="EndTxn", transactional_id="traced") as exchanges:
        commit(producer)
        followed = next(exchanges)
        assert (followed["api"], followed["outcome"]) == ("EndTxn", "answered")
        (entry,) = trace.entries(api="EndTxn", transactional_id="traced")
        assert entry["number"] == followed["number"]
        trace.pcap(tmp_path / "trace.pcap", api="EndTxn")
    assert not broker.trace.status["running"]
    assert b"traced" in (tmp_path / "trace.pcap").read_bytes()


def test_a_follower_of_the_trace_gets_an_error_when_the_broker_ends() -> None:
    with odradek.Broker() as broker, broker.trace.follow() as exchanges:
        broker.kill()
        assert list(exchanges) == []


def test_transactions_and_their_lives_are_told(broker: odradek.Broker) -> None:
    producer = producer_of(broker, "tx/ü")
    commit(producer, partition=1)
    told = broker.transactions["tx/ü"]
    assert (told.state, told.coordinator) == ("CompleteCommit", 1)
    assert told in broker.transactions.list()
    timeline = broker.timeline("tx/ü")
    assert "orders-1" in str(timeline)
    assert timeline.events
    with pytest.raises(odradek.NotFound):
        broker.timeline("unknown")
    with pytest.raises(KeyError):
        _ = broker.transactions["unknown"]


# -- nodes


def test_a_node_is_killed_others_lead_and_it_comes_back() -> None:
    with odradek.Broker(nodes=3, topics=["orders:3:min.insync.replicas=1"]) as broker:
        assert (list(broker.nodes), len(broker.nodes)) == ([1, 2, 3], 3)
        assert len(broker.bootstrap_servers.split(",")) == 3
        node = broker.nodes[2]
        node.kill()
        assert (node.state, node.leads) == ("killed", {})
        with pytest.raises(odradek.ControlRefused, match="node 2 is killed, not running"):
            node.stop()
        node.start()
        eventually(lambda: node.state == "running")
        node.stop()
        assert {number: each.state for number, each in broker.nodes.items()} == {
            1: "running",
            2: "stopped",
            3: "running",
        }
        with pytest.raises(odradek.NotFound, match="there is no node 9"):
            broker.nodes[9].kill()


# -- remote brokers


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://127.0.0.1:1", "http://127.0.0.1", "http://h:x"])
def test_what_is_no_control_port_is_said_to_be_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ODRADEK_CONTROL", raising=False)
    with pytest.raises(odradek.ControlUnreachable, match="control"):
        odradek.connect(url)


def test_a_handle_has_what_a_remote_broker_has() -> None:
    public = {name for name in vars(Remote) if not name.startswith("_")}
    assert public - {"bootstrap_servers", "reset", "reset_async"} <= {name for name in vars(Handle)}


def test_the_variable_says_which_broker(broker: odradek.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_CONTROL", broker.control_url)
    assert odradek.connect().bootstrap_servers == broker.bootstrap_servers
    monkeypatch.delenv("ODRADEK_CONTROL")
    monkeypatch.setenv("ODRADEK_CONTROL_PORT", broker.control_url.rpartition(":")[2])
    assert odradek.connect().bootstrap_servers == broker.bootstrap_servers


def test_a_response_that_is_not_from_a_control_port_is_reported(broker: odradek.Broker) -> None:
    kafka = broker.bootstrap_servers
    with pytest.raises(odradek.ControlUnreachable, match="no control port at"):
        odradek.connect(f"http://{kafka}").faults.list()
    broker.process.tracebacks_expected = False


def test_a_busy_broker_is_not_reported_as_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ControlClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(
            odradek.ControlUnreachable,
            match=r"did not respond within 0.05 s: it is busy; it still completes the call",
        ):
            client.post("/v1/reset")
        with pytest.raises(odradek.ControlUnreachable, match=r"it is busy; the advance stops where it is"):
            client.post("/v1/clock/advance", {"by": "7d"})
        with pytest.raises(odradek.ControlUnreachable, match=r"GET /v1/clock .* it is busy$"):
            client.get("/v1/clock")


def test_the_user_s_process_imports_nothing_of_the_broker() -> None:
    script = (
        "import odradek, sys, json; odradek.Broker, odradek.connect;"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert loaded.isdisjoint(
        {"broker", "protocol", "storage", "kio", "aiohttp", "msgspec", "structlog", "click"}
    )


def test_a_service_of_kubernetes_is_no_control_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ODRADEK_CONTROL_PORT with a URL is not taken for a control port.

    Kubernetes sets this variable to a URL if a Service is called odradek-control.
    """
    monkeypatch.delenv("ODRADEK_CONTROL", raising=False)
    monkeypatch.setenv("ODRADEK_CONTROL_PORT", "tcp://10.96.0.1:18092")
    with pytest.raises(odradek.ControlUnreachable, match="no control port is set"):
        odradek.connect()
