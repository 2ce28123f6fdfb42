"""Some of Apache Kafka's own integration tests and of Spark's, and tests of the program that runs all of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kafka_tests import run
from tests.kafka_tests.run import AGAINST, DIFFERENCES, FAILED_TOO, SETS, SKIPS, Result, judged

TRANSACTIONS = "kafka.api.TransactionsTest"
CHOSEN = (
    "kafka.server.AddPartitionsToTxnRequestServerTest",
    "kafka.server.ConsumerGroupHeartbeatRequestTest",
    "kafka.server.TxnOffsetCommitRequestTest",
    "kafka.server.WriteTxnMarkersRequestTest",
    f"{TRANSACTIONS}.testFencingOnAddPartitions",
    f"{TRANSACTIONS}.testFencingOnSend",
    f"{TRANSACTIONS}.testMultipleMarkersOneLeader",
    f"{TRANSACTIONS}.testReadCommittedConsumerShouldNotSeeUndecidedData",
    f"{TRANSACTIONS}.testSendOffsetsWithGroupMetadata",
)
"""Tests that run in about a minute."""
SHARE_CONSUMER = "org.apache.kafka.clients.consumer.ShareConsumerTest"
CHOSEN_OF_SHARE_GROUPS = (
    "kafka.server.ShareGroupDescribeRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest.testMemberJoiningAndExpiring",
    "kafka.server.ShareFetchAcknowledgeRequestTest.testShareFetchRequestPiggybackedReject",
    f"{SHARE_CONSUMER}.testComplexShareConsumer",
    f"{SHARE_CONSUMER}.testControlRecordsSkipped",
    f"{SHARE_CONSUMER}.testExplicitAcknowledgeReleaseAccept",
    f"{SHARE_CONSUMER}.testRenewAcknowledgementDisabled",
)
"""Tests that run in a minute."""
RELATION = "org.apache.spark.sql.kafka010.KafkaRelationSuiteV2"
ONE_TEST = "org.apache.spark.sql.kafka010.ConsumerStrategySuite.createAdmin must create admin properly"


@pytest.mark.foreign
@pytest.mark.client("Java")
@pytest.mark.feature("transactions")
def test_kafkas_own_tests_of_transactions_and_groups_pass():
    assert_all_pass(CHOSEN)


@pytest.mark.foreign
@pytest.mark.client("Java")
def test_kafkas_own_tests_of_share_groups_pass():
    assert_all_pass(CHOSEN_OF_SHARE_GROUPS)


def assert_all_pass(chosen: Sequence[str]) -> None:
    results = [each for _, found in run.run(chosen) for each in found]
    assert [each for each in results if each.verdict != "passed"] == []
    passed = {each.test for each in results}
    assert all(any(test.startswith(each) for test in passed) for each in chosen)


@pytest.mark.foreign
def test_sparks_own_tests_of_batch_queries_pass():
    pytest.importorskip("pyspark")
    results = [each for _, found in run.run([RELATION, ONE_TEST]) for each in found]
    assert [each for each in results if each.verdict != "passed"] == []
    passed = {each.test for each in results}
    assert f"{RELATION}.read Kafka transactional messages: read_committed" in passed
    assert {each for each in passed if not each.startswith(RELATION)} == {ONE_TEST}


def test_each_expectation_is_of_a_class_that_runs():
    classes = [name for classes in SETS.values() for name in classes]
    assert len(classes) == len(set(classes))
    assert {run.class_of(each) for each in (*SKIPS, *DIFFERENCES)} <= set(classes)
    assert not set(SKIPS).intersection(DIFFERENCES)


@pytest.mark.parametrize(
    ("test", "its_class"),
    [
        ("kafka.api.TransactionsTest", "kafka.api.TransactionsTest"),
        ("kafka.api.TransactionsTest.testFencingOnSend", "kafka.api.TransactionsTest"),
        (
            "org.apache.spark.sql.kafka010.KafkaRelationSuiteV2.SPARK-1: a. B",
            "org.apache.spark.sql.kafka010.KafkaRelationSuiteV2",
        ),
    ],
)
def test_the_name_of_a_test_begins_with_its_class(test: str, its_class: str):
    assert run.class_of(test) == its_class


def test_a_known_failure_that_passes_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(DIFFERENCES, "a.B.known", "order")
    monkeypatch.setitem(DIFFERENCES, "a.B.gone", "order")
    results = [
        Result("a.B.known", "failed", "expected 1"),
        Result("a.B.gone", "passed"),
        Result("a.B.other", "passed"),
    ]
    found = list(judged(results, whole=True))
    assert [each.verdict for each in found] == ["differs", "failed", "passed"]
    assert found[0].reason == "order"
    assert [each.verdict for each in judged(results[1:2], whole=False)] == ["passed"]


def test_a_test_that_fails_with_kafka_too_is_not_a_failure_of_ours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(DIFFERENCES, "a.B.known", "order")
    results = [
        Result("a.B.known", "failed", "expected 1"),
        Result("a.B.slow", "failed", "expected 2", display="[1]"),
        Result("a.B.slow", "failed", "expected 2", display="[2]"),
    ]
    with_kafka = [
        Result("a.B.known", "failed", "a timeout"),
        Result("a.B.slow", "failed", "a timeout", display="[1]"),
        Result("a.B.slow", "passed", display="[2]"),
    ]
    found = list(judged(results, with_kafka, whole=True))
    assert [each.verdict for each in found] == [FAILED_TOO, FAILED_TOO, "failed"]
    assert found[0].reason == "order\nwith Kafka: a timeout"
    assert found[1].reason == "expected 2\nwith Kafka: a timeout"


def test_only_the_tests_that_fail_run_with_kafka(monkeypatch: pytest.MonkeyPatch):
    ran = []

    def one_jvm(
        classes: Sequence[str], tests: Sequence[str], against: str
    ) -> Iterator[tuple[str, list[Result]]]:
        ran.append((list(classes), list(tests), against))
        yield classes[0], [Result(f"{classes[0]}.{each}", each) for each in ("failed", "passed")]

    monkeypatch.setattr(run, "_one_jvm", one_jvm)
    found = [each for _, results in run.run(["a.B"], "both") for each in results]
    assert ran == [(["a.B"], ["a.B"], "both"), (["a.B"], ["a.B.failed"], "kafka")]
    assert [each.verdict for each in found] == [FAILED_TOO, "passed"]


@pytest.mark.parametrize("against", AGAINST)
def test_a_class_without_tests_has_failed(monkeypatch: pytest.MonkeyPatch, against: str):
    monkeypatch.setattr(run, "_one_jvm", lambda *_: iter([("a.B", [])]))
    assert [result.verdict for _, results in run.run(["a.B"], against) for result in results] == ["failed"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_jvm_ends_with_the_run(tmp_path: Path, number: signal.Signals):
    """A JVM ends when its standard input does (`launcher/Lines.java`), as ``cat`` here."""
    jvm = tmp_path / "java"
    jvm.write_text("#!/bin/sh\necho begun >&3\nexec cat >/dev/null\n")
    jvm.chmod(0o755)
    program = (
        "import os, sys; from tests.kafka_tests import run; os.dup2(1, 3, inheritable=True)\n"
        "run.java, run._kafkas = lambda: sys.argv[1], lambda against: []\n"
        "popen = run.subprocess.Popen; run.subprocess.Popen = lambda *a, **b: popen(*a, **b, pass_fds=[3])\n"
        "run.end_at_sigterm(); list(run.run(['a.B'], 'kafka'))"
    )
    with subprocess.Popen([sys.executable, "-c", program, jvm], stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"begun\n"
        runner.send_signal(number)
        assert runner.stdout.read() == b"", "the JVM has it, too, and must end"


def test_a_run_continues_after_the_last_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def one_jvm(
        classes: Sequence[str], tests: Sequence[str], against: str
    ) -> Iterator[tuple[str, list[Result]]]:
        yield classes[0], [Result(f"{classes[0]}.test", "failed" if classes[0] == "d.E" else "passed")]

    monkeypatch.setattr(run, "KEPT", tmp_path)
    monkeypatch.setattr(run, "_one_jvm", one_jvm)
    monkeypatch.setattr(run, "fork_brokers", lambda: None)
    monkeypatch.setattr(run, "SETS", {"x": ["a.B", "b.C"], "y": ["d.E"]})
    assert run.main(["--set", "x"]) == 0
    capsys.readouterr()
    assert run.main([]) == 1
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "d.E",
        "  failed",
        "    ",
        "== x",
        "== y",
        "== all",
    ]
