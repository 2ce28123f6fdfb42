"""The commands that control a running broker, on the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

import odradek as package
from tests.support.clients import PATIENCE, eventually
from tests.support.deadlines import HANG_S
from tests.support.notices import without_notices

START = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"


@pytest.fixture(scope="module")
def broker() -> Iterator[package.Broker]:
    with package.Broker(nodes=2, topics=["orders:2"]) as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_rules_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").faults.clear()


def run(broker: package.Broker | None, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ODRADEK_")}
    control = {} if broker is None else {"ODRADEK_CONTROL": broker.control_url}
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        env={**inherited, **control, **environ},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def said(broker: package.Broker, *words: str) -> str:
    done = run(broker, *words)
    assert (done.returncode, without_notices(done.stderr)) == (0, ""), done.stderr
    return done.stdout


def commit(broker: package.Broker, transactional_id: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **PATIENCE}
    )
    producer.init_transactions(HANG_S)
    producer.begin_transaction()
    producer.produce("orders", b"value", partition=0)
    producer.commit_transaction(HANG_S)


def test_help_comes_at_once() -> None:
    """The help imports no module that it does not need, as imports are most of its time."""
    look = f"import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {START}"
    done = subprocess.run(
        [sys.executable, "-c", look, "--help"], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert "fault" in done.stdout
    imported = {name.partition(".")[0] for name in done.stderr.split()}
    assert "odradek" in imported
    assert not imported & {
        "aiohttp",
        "asyncio",
        "confluent_kafka",
        "kio",
        "numpy",
        "pandas",
        "pyspark",
        "rich",
        "structlog",
    }


@pytest.mark.parametrize("command", ["fault", "clock", "trace", "txn", "node", "snapshot", "chaos", "topic"])
def test_every_command_has_help_and_the_line_that_the_list_has(command: str) -> None:
    listed = next(
        line for line in run(None, "--help").stdout.splitlines() if line.startswith(f"  {command} ")
    )
    sentence = " ".join(listed.split()[1:])
    own = run(None, command, "--help").stdout
    assert sentence in " ".join(own.split())


def test_a_mistyped_command_or_option_names_the_nearest() -> None:
    for words in (["falt"], ["fault", "ad"], ["trace", "--folow"]):
        done = run(None, *words)
        assert done.returncode == 2
        assert {"falt": "fault", "ad": "add", "--folow": "--follow"}[words[-1]] in done.stderr


# -- which broker


def test_without_a_broker_they_say_how_to_name_one() -> None:
    done = run(None, "fault", "list")
    assert done.returncode == 3
    assert "ODRADEK_CONTROL" in done.stderr
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    done = run(None, "fault", "list", "--control", f"http://127.0.0.1:{port}")
    assert done.returncode == 3
    assert "is the broker running, and was it started with --control-port?" in done.stderr


def test_the_option_wins_over_the_variable(broker: package.Broker) -> None:
    done = run(None, "fault", "list", "--control", broker.control_url, ODRADEK_CONTROL="http://127.0.0.1:1")
    assert done.returncode == 0


def test_a_token_comes_by_option_or_variable() -> None:
    with package.Broker(environment={"ODRADEK_CONTROL_TOKEN": "secret"}) as broker:
        assert "requires its token" in run(broker, "clock", "show").stderr
        assert run(broker, "clock", "show", ODRADEK_CONTROL_TOKEN="secret").returncode == 0
        assert run(broker, "clock", "show", "--token", "secret").returncode == 0


# -- fault


def test_rules_are_added_listed_shown_and_cleared(broker: package.Broker) -> None:
    assert "no rules" in said(broker, "fault", "list")
    one = said(broker, "fault", "add", "EndTxn transactional_id=payments nth=2 -> lose-answer").strip()
    other = json.loads(said(broker, "fault", "add", "--json", "cut", "1", "2", "expires=60s"))
    headings, *rows = said(broker, "fault", "list").splitlines()
    assert headings.split() == ["ID", "HITS", "MATCHES", "HOLDS", "RULE"]
    assert rows[0].split(maxsplit=4) == [
        one,
        "0",
        "0",
        "-",
        "EndTxn transactional_id=payments nth=2 -> lose-answer",
    ]
    assert [rule["id"] for rule in json.loads(said(broker, "fault", "list", "--json"))] == [
        int(one),
        other["id"],
    ]
    assert said(broker, "fault", "show", one).splitlines()[1] == "hits 0 of 0 matches"
    assert said(broker, "fault", "clear", one) == "1 removed\n"
    assert json.loads(said(broker, "fault", "clear", "--json")) == {"cleared": 1}


def test_a_rule_with_flags_in_it_needs_no_quotes(broker: package.Broker) -> None:
    said(broker, "fault", "add", "slow-link", "1", "2", "5ms", "one-way")
    (rule,) = broker.faults
    assert rule.text == "slow-link 1 2 delay=5ms one-way"


def state_of(broker: package.Broker, node_id: int) -> str:
    return broker.nodes[node_id].state


def test_a_node_is_paused_and_resumed(broker: package.Broker) -> None:
    assert said(broker, "node", "pause", "2").startswith("node 2 is paused")
    assert state_of(broker, 2) == "paused"
    assert said(broker, "node", "resume", "2") == "node 2 is running\n"
    broker.nodes[2].pause()
    broker.nodes[2].resume()
    assert state_of(broker, 2) == "running"


def test_leaders_are_moved_and_the_partitions_shown(broker: package.Broker) -> None:
    led = broker.partitions("orders")[0]
    to = 3 - (led.leader or 0)
    assert said(broker, "node", "move-leader", "orders/0", str(to)).startswith(
        f"node {to} leads orders-0 in "
    )
    headings, first, *_ = said(broker, "node", "partitions", "orders").splitlines()
    assert headings.split()[:4] == ["PARTITION", "LEADER", "EPOCH", "ISR"]
    assert first.split()[:3] == ["orders-0", str(to), str(led.leader_epoch + 1)]
    shown = json.loads(said(broker, "node", "partitions", "orders", "--json"))
    assert shown[0]["leader"] == broker.move_leader("orders", 0, to=to).leader == to
    assert broker.losses() == json.loads(said(broker, "node", "losses", "--json")) == []
    assert said(broker, "node", "losses").split()[:2] == ["PARTITION", "OFFSETS"]
    moved = said(broker, "node", "move-coordinator", "--group", "g", "2")
    assert moved.startswith("node 2 leads __consumer_offsets-")
    assert broker.move_coordinator(group="g", to=1).leader == 1
    assert run(broker, "node", "move-leader", "orders", "1").returncode == 2
    assert run(broker, "node", "move-leader", "none/0", "1").returncode == 4


def test_what_is_held_is_shown_and_released(broker: package.Broker) -> None:
    rule = broker.faults.add("EndTxn transactional_id=held nth=1 -> hold")
    committing = subprocess.Popen([sys.executable, "-c", COMMIT, broker.bootstrap_servers, "held"])
    rule.wait()
    shown = said(broker, "fault", "show", str(rule.id)).splitlines()
    assert shown[1] == "hits 1 of 1 matches, spent"
    assert shown[3].split()[0] == "EndTxn"
    assert " held " in shown[3]
    assert said(broker, "fault", "release", str(rule.id), "--transactional-id", "other") == "0 released\n"
    assert said(broker, "fault", "release", str(rule.id), "--count", "1") == "1 released\n"
    assert committing.wait(HANG_S) == 0
    shown = said(broker, "fault", "show", str(rule.id)).splitlines()
    assert shown[-2].split()[0] == "RELEASED"
    assert shown[-1].split()[-2:] == ["answered", "NONE"]


COMMIT = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2]})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce("orders", b"value")
producer.commit_transaction(60)
"""


def test_an_invalid_rule_is_refused_with_the_broker_s_message(broker: package.Broker) -> None:
    done = run(broker, "fault", "add", "EndTxn -> explode")
    assert done.returncode == 1
    assert "Error: the action 'explode' is not known; known" in done.stderr
    for words in (["show", "99"], ["release", "99"], ["clear", "99"]):
        done = run(broker, "fault", *words)
        assert (done.returncode, "there is no rule 99" in done.stderr) == (4, True)


# -- clock


def test_time_is_shown_and_moved_on(broker: package.Broker) -> None:
    before = broker.clock.ahead_ms
    told = said(broker, "clock", "advance", "1d12h", "--only", "groups,retention", "--only", "ids")
    assert told.startswith("now 2")
    line = next(line for line in told.splitlines() if line.startswith("groups"))
    assert line.split()[1] == "1d12h"
    after = json.loads(said(broker, "clock", "show", "--json"))["ahead_ms"]
    moved = {domain for domain in after if after[domain] - before[domain] == 129_600_000}
    assert moved == {"groups", "retention", "ids"}
    assert "is not a duration" in run(broker, "clock", "advance", "soon").stderr


# -- trace


def test_the_trace_is_switched_shown_and_captured(broker: package.Broker, tmp_path: Path) -> None:
    assert "the trace is off" in run(broker, "trace").stderr
    assert said(broker, "trace", "--start") == "the trace is on\n"
    commit(broker, "traced")
    (line,) = said(broker, "trace", "--transactional-id", "traced", "--api", "EndTxn").splitlines()
    assert "EndTxn" in line
    (entry,) = said(broker, "trace", "--json", "--transactional-id", "traced", "--api", "EndTxn").splitlines()
    assert json.loads(entry)["request"]["transactional_id"] == "traced"
    assert len(said(broker, "trace", "--limit", "2").splitlines()) == 2
    said(broker, "trace", "--pcap", str(tmp_path / "trace.pcap"))
    assert b"traced" in (tmp_path / "trace.pcap").read_bytes()
    assert said(broker, "trace", "--stop") == "the trace is off\n"
    assert "no API is called 'Nonsense'" in run(broker, "trace", "--api", "Nonsense").stderr


def test_the_trace_is_followed_until_ctrl_c_and_left_as_it_was(broker: package.Broker) -> None:
    command = [
        sys.executable,
        "-u",
        "-c",
        START,
        "trace",
        "--follow",
        "--api",
        "EndTxn",
        "--control",
        broker.control_url,
    ]
    follower = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    eventually(lambda: broker.trace.status["followers"] == 1)
    commit(broker, "followed")
    assert "tx=followed" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=HANG_S)
    assert (follower.returncode, errors) == (0, "")
    assert not broker.trace.status["running"]


# -- txn


def test_transactions_are_listed_and_their_lives_told(broker: package.Broker) -> None:
    commit(broker, "told")
    row = next(line for line in said(broker, "txn", "list").splitlines() if line.startswith("told "))
    assert row.split()[1] == "CompleteCommit"
    listed = {each["transactional_id"]: each for each in json.loads(said(broker, "txn", "list", "--json"))}
    assert listed["told"]["state"] == "CompleteCommit"
    told = said(broker, "txn", "timeline", "told")
    assert "PrepareCommit" in told
    assert "orders-0" in told
    assert json.loads(said(broker, "txn", "timeline", "told", "--json"))["transactional_id"] == "told"
    assert run(broker, "txn", "timeline", "unknown").returncode == 4
    assert said(broker, "txn", "wait", "told") == "told: CompleteCommit\n"
    waited = run(broker, "txn", "wait", "told", "Ongoing", "Empty", "--timeout", "0")
    assert (waited.returncode, waited.stderr) == (
        1,
        "Error: told: CompleteCommit, not Ongoing,Empty, after 0.0 s\n",
    )


# -- node


def test_nodes_are_listed_killed_stopped_and_started(broker: package.Broker) -> None:
    headings, *rows = said(broker, "node", "list").splitlines()
    assert headings.split() == ["NODE", "STATE", "ADVERTISED", "SKEW", "CONNECTIONS", "LEADS"]
    assert [row.split()[:2] for row in rows] == [["1", "running"], ["2", "running"]]
    assert any("orders" in row for row in rows)
    assert "node start 2" in said(broker, "node", "kill", "2")
    assert json.loads(said(broker, "node", "list", "--json"))[1]["state"] == "killed"
    done = run(broker, "node", "stop", "2")
    assert (done.returncode, done.stderr) == (1, "Error: node 2 is killed, not running\n")
    for words, state in (("start", "running"), ("stop", "stopped"), ("start", "running")):
        view = json.loads(said(broker, "node", words, "2", "--json"))
        assert (view["node_id"], view["state"]) == (2, state)
    assert run(broker, "node", "kill", "9").returncode == 4


def test_a_node_is_set_ahead_and_behind(broker: package.Broker) -> None:
    assert said(broker, "node", "skew", "2", "-1h30m") == "the clock of node 2 is 1h30m behind\n"
    assert "1h30m behind" in said(broker, "node", "list").splitlines()[2]
    assert broker.nodes[2].skew_ms == -5_400_000
    broker.nodes[2].skew(timedelta(minutes=5))
    assert [each["skew_ms"] for each in broker.nodes.show()] == [0, 300_000]
    broker.nodes[2].skew(-7)
    assert broker.nodes[2].skew_ms == -7
    refused = run(broker, "node", "skew", "2", "-later")
    assert (refused.returncode, "No such option" in refused.stderr) == (2, True)
    assert said(broker, "node", "skew", "2", "0") == "the clock of node 2 is not skewed\n"
    broker.nodes[2].skew("-30s")
    broker.nodes[2].skew(0)
    assert broker.nodes[2].skew_ms == 0


def test_connections_are_misrouted_until_they_are_routed_to_the_node_itself(broker: package.Broker) -> None:
    assert said(broker, "node", "misroute", "2", "--to", "1") == (
        "node 1 serves new connections to node 2 (to end that: odradek node misroute 2 --to 2)\n"
    )
    assert "running, misrouted to 1" in said(broker, "node", "list").splitlines()[2]
    view = json.loads(said(broker, "node", "misroute", "2", "--to", "2", "--json"))
    assert view["misrouted_to"] is None
    assert run(broker, "node", "misroute", "2", "--to", "9").returncode == 4


# -- snapshot


def test_a_snapshot_is_taken_listed_restored_and_removed(broker: package.Broker) -> None:
    taken = json.loads(said(broker, "snapshot", "take", "--json"))["id"]
    broker.create_topic("after-the-snapshot")
    assert str(taken) in said(broker, "snapshot", "list")
    assert [each["id"] for each in json.loads(said(broker, "snapshot", "list", "--json"))] == [taken]
    assert json.loads(said(broker, "snapshot", "restore", str(taken), "--json"))["id"] == taken
    topics = {each.topic for each in broker.partitions()}
    assert "after-the-snapshot" not in topics
    assert "orders" in topics
    assert json.loads(said(broker, "snapshot", "remove", str(taken), "--json")) == {"removed": taken}
    assert run(broker, "snapshot", "restore", str(taken)).returncode == 4
