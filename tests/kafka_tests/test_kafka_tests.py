"""Some of Apache Kafka's own integration tests, and tests of the program that runs all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kafka_tests import run
from tests.kafka_tests.run import DIFFERENCES, SETS, SKIPS, Result, judged

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


@pytest.mark.foreign
@pytest.mark.client("Java")
@pytest.mark.feature("transactions")
def test_kafkas_own_tests_of_transactions_and_groups_pass():
    results = [each for _, found in run.run(CHOSEN) for each in found]
    assert [each for each in results if each.verdict != "passed"] == []
    passed = {each.test for each in results}
    assert all(any(test.startswith(each) for test in passed) for each in CHOSEN)


def test_each_expectation_is_of_a_class_that_runs():
    classes = [name for classes in SETS.values() for name in classes]
    assert len(classes) == len(set(classes))
    assert {each.rpartition(".")[0] for each in (*SKIPS, *DIFFERENCES)} <= set(classes)
    assert not set(SKIPS).intersection(DIFFERENCES)


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
