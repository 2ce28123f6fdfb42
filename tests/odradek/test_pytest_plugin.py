"""The pytest plugin: pytest runs in a process, on test files as users write them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


def write(folder: Path, text: str, name: str = "test_users.py") -> None:
    (folder / name).write_text(text)


def test_pytest_finds_it_by_itself_once_it_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"odradek": "odradek.pytest_plugin"}


def test_it_loads_nothing_before_a_test_asks() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import odradek.pytest_plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["odradek", "odradek.pytest_plugin"]


def test_each_set_of_options_has_a_broker(run_pytest: Run, tmp_path: Path) -> None:
    options = """
import pytest

@pytest.fixture(scope="session")
def odradek_options(odradek_options):
    return {**odradek_options, "topics": ["TOPIC"]}

@pytest.fixture(scope="session")
def filled(odradek_broker):
    return odradek_broker.create_topic("filled")
"""
    look = """
def test_it(odradek_broker, filled):
    assert sorted(odradek_broker.nodes[1].leads) == ["filled", "TOPIC"]
    print(f"\\nPROCESS {odradek_broker.control_url}")
"""
    spark_s = 'pytest_plugins = ["odradek.spark.testing.fixtures"]\n'
    write(tmp_path, spark_s + options.replace("TOPIC", "of-all"), "conftest.py")
    write(tmp_path, look.replace("TOPIC", "of-all"), "test_1.py")
    write(tmp_path, (options + look).replace("TOPIC", "own"), "test_2.py")
    write(tmp_path, (options + look).replace("TOPIC", "own"), "test_3.py")
    write(tmp_path, look.replace("TOPIC", "of-all"), "test_4.py")
    mine = """
import pytest

@pytest.fixture(scope="session")
def odradek_broker():
    return "mine"

def test_it(odradek_broker):
    assert odradek_broker == "mine"
"""
    write(tmp_path, mine, "test_5.py")
    of_spark = (options + look).replace("odradek_", "kafka_").replace("PROCESS", "").replace(", filled", "")
    for number in (6, 7):
        write(
            tmp_path,
            of_spark.replace('"filled", "TOPIC"', f'"{number}"').replace("TOPIC", str(number)),
            f"test_{number}.py",
        )
    done = run_pytest(tmp_path, "-s")
    assert "7 passed" in done.stdout, done.stdout
    one, two, three, four = re.findall(r"PROCESS (\S+)", done.stdout)
    assert (two, len({one, two, four})) == (three, 3)


def test_one_broker_serves_the_session_and_rules_go_with_their_test(run_pytest: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
import pytest

@pytest.fixture(scope="session")
def odradek_options():
    return {"topics": ["orders:3"]}

seen = []

def test_one(odradek_broker, odradek_faults):
    odradek_faults.add("EndTxn -> drop")
    seen.append(odradek_broker.control_url)
    assert odradek_broker.nodes[1].leads["orders"] == [0, 1, 2]

def test_two(odradek_broker, odradek_faults):
    assert odradek_faults.list() == []
    assert seen == [odradek_broker.control_url]
""",
    )
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout


def test_rules_that_the_session_itself_has_added_stay(run_pytest: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
def test_one(odradek_broker, odradek_faults):
    odradek_broker.faults.add("Produce topic=x -> drop")
    odradek_faults.add("EndTxn -> drop")

def test_two(odradek_faults):
    assert [rule.text for rule in odradek_faults] == ["Produce topic=x -> drop"]
""",
    )
    assert "2 passed" in run_pytest(tmp_path).stdout


def test_time_and_clusters_are_a_test_s_own(run_pytest: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
def test_time(odradek_clock, odradek_broker):
    assert odradek_clock.broker.control_url != odradek_broker.control_url
    odradek_clock.advance("7d")
    assert odradek_clock.ahead_ms["ids"] == 7 * 86_400_000
    assert odradek_broker.clock.ahead_ms["ids"] == 0

def test_time_again(odradek_clock):
    assert odradek_clock.ahead_ms["ids"] == 0

def test_cluster(odradek_cluster):
    one, three = odradek_cluster(), odradek_cluster(nodes=3)
    assert [len(broker.nodes) for broker in (one, three)] == [1, 3]
""",
    )
    done = run_pytest(tmp_path)
    assert "3 passed" in done.stdout, done.stdout


@pytest.mark.more
def test_errors_show_the_line_of_the_test_and_names_that_a_fixture_hides_are_found(
    run_pytest: Run, tmp_path: Path
) -> None:
    write(
        tmp_path,
        """
import pytest
import odradek as module

def test_classes_of_errors(odradek):
    with pytest.raises(odradek.NotFound):
        odradek.records("gone")

def test_the_module(odradek_clean):
    import odradek
    assert odradek.connect(odradek_clean.control_url).cluster_id == odradek_clean.cluster_id

def test_a_name_of_the_module(odradek):
    odradek.connect

def test_refused(odradek):
    odradek.create_topic("no such name")

def test_lost(odradek):
    odradek.assert_exactly_once(odradek.create_topic(), ["a"])

def test_not_hit(odradek_broker, odradek_faults):
    odradek_faults.add("EndTxn -> drop").wait(timeout_s=0)

async def wait(rule):
    await rule.wait_async(timeout_s=0)

def test_not_hit_async(odradek_broker, odradek_faults):
    import asyncio
    asyncio.run(wait(odradek_faults.add("EndTxn -> drop")))
""",
    )
    done = run_pytest(tmp_path, "--tb=short")
    assert "5 failed, 2 passed" in done.stdout, done.stdout
    assert "`from odradek import connect`" in done.stdout
    frames = re.findall(r"^(\S+\.py):\d+: in (\w+)$", done.stdout, re.M)
    assert [frame for frame in frames if f"{ROOT}/odradek/" in frame[0]] == [], done.stdout
    assert len([frame for frame in frames if frame[0] == "test_users.py"]) == 6


HOLDING = """
import threading
import pytest
from confluent_kafka import Producer

@pytest.fixture
def committing(odradek_broker, odradek_faults):
    odradek_faults.add("EndTxn", transactional_id="payments", do="hold")
    producer = Producer({"bootstrap.servers": odradek_broker.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"value")
    yield threading.Thread(target=producer.commit_transaction, args=(10,))
    TEARDOWN

def test_it(odradek_faults, committing):
    committing.start()
    odradek_faults.list()[0].wait()
    TEST
"""


@pytest.mark.parametrize(
    ("test", "teardown"), [("assert False", "pass"), ("pass", "raise Exception('in the end')")]
)
def test_a_failure_shows_what_rules_hold(run_pytest: Run, tmp_path: Path, test: str, teardown: str) -> None:
    write(tmp_path, HOLDING.replace("TEARDOWN", teardown).replace("TEST", test))
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "odradek rules" in done.stdout, done.stdout
    assert "1: EndTxn transactional_id=payments -> hold: 1 hit of 1 match" in done.stdout
    assert "holds EndTxn on node 1, connection" in done.stdout


def test_a_broker_that_died_in_a_test_is_no_error_of_the_fixtures(run_pytest: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
def test_it(odradek_broker, odradek_faults):
    odradek_faults.add("EndTxn -> drop")
    odradek_broker.kill()
""",
    )
    assert "1 passed" in run_pytest(tmp_path).stdout


def test_rules_can_be_added_to_a_broker_that_was_restarted(run_pytest: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        """
def test_it(odradek_broker, odradek_faults):
    odradek_faults.add("EndTxn -> drop")
    odradek_broker.kill()
    odradek_broker.restart()
    odradek_faults.add("Produce -> drop")
    assert [rule.text for rule in odradek_broker.faults] == ["Produce -> drop"]

def test_the_next_one(odradek_faults):
    assert odradek_faults.list() == []
""",
    )
    assert "2 passed" in run_pytest(tmp_path).stdout


def test_each_test_has_topics_of_its_own_and_a_rule_without_a_hit_is_named(
    run_pytest: Run, tmp_path: Path
) -> None:
    write(
        tmp_path,
        """
import pytest

@pytest.mark.parametrize("number", ["a b", "a/b"])
def test_topic(odradek_broker, odradek_topic, number):
    names = {odradek_topic(partitions=2), odradek_topic(cleanup_policy="compact")}
    assert len(names) == 2
    assert all(name.startswith("test_topic-a-b-") for name in names)
    leads = odradek_broker.nodes[1].leads
    assert sorted(len(leads[name]) for name in names) == [1, 2]
    assert len(leads) == {"a b": 2, "a/b": 4}[number]

def test_unhit(odradek_faults):
    odradek_faults.add("EndTxn -> drop")
    odradek_faults.add("Produce -> drop").remove()

def test_hit(odradek_broker, odradek_faults):
    odradek_faults.add("Metadata -> delay 1ms")
    with odradek_faults.add("ApiVersions -> delay 1ms"):
        from confluent_kafka.admin import AdminClient
        AdminClient({"bootstrap.servers": odradek_broker.bootstrap_servers}).list_topics(timeout=60)

def test_gone(odradek_broker, odradek_faults):
    odradek_faults.add("EndTxn -> drop")
    odradek_broker.reset()
""",
    )
    warned = run_pytest(tmp_path)
    assert "5 passed, 1 warning" in warned.stdout, warned.stdout
    assert "test_users.py::test_unhit" in warned.stdout
    assert "UnhitRuleWarning: rules without a hit:" in warned.stdout
    assert "EndTxn -> drop: 0 hits of 0 matches" in warned.stdout
    assert "Produce -> drop: 0 hits of 0 matches" in warned.stdout
    for arguments in (["-o", "odradek_unhit=fail"], ["-W", "error::pytest.PytestWarning"]):
        failed = run_pytest(tmp_path, "-k", "hit", *arguments)
        assert "1 failed, 1 passed" in failed.stdout, failed.stdout
        assert "the test passed, with rules without a hit:" in failed.stdout
    wrong = run_pytest(tmp_path, "-o", "odradek_unhit=maybe")
    assert "odradek_unhit is 'maybe', not warn or fail or ignore" in wrong.stderr
