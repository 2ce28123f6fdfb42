"""Tests of the list of rare paths: each path is recognised, and the nightly run fails if a path is never reached."""

from __future__ import annotations

from pathlib import Path

from broker.transactions import decisions
from broker.transactions.transaction import AbortFirst, Answer, Transaction, TransactionState
from protocol.errors import ErrorCode
from tests.simulation import nightly, rare


def test_a_path_is_noted_when_the_broker_passes_it():
    reached = rare.watch()
    txn = Transaction("id", 1, epoch=3, state=TransactionState.ONGOING)
    asked = {"timeout_ms": 1, "producer_id": -1, "epoch": -1, "now_ms": 0}
    assert decisions.init_producer_id(txn, None, **asked) == AbortFirst(
        Answer(ErrorCode.concurrent_transactions)
    )
    assert reached.names == {"InitProducerId aborts an open transaction"}
    assert not rare.watch().names


def test_log_lines_and_faults_are_recognised():
    reached = rare.Reached()
    reached.log_line({"event": "in-sync replicas change", "isr": [1], "before": [1, 2]})
    reached.log_line({"event": "finishing a decided transaction", "state": "PREPARE_ABORT"})
    reached.fault("fault: orders-0: flipped at 7 of 0..90")
    assert reached.names == {
        "a replica leaves the ISR",
        "a new coordinator finishes PREPARE_ABORT",
        "a power cut flips a bit",
    }


def test_the_nightly_run_fails_if_a_seed_fails_or_a_path_is_never_reached(tmp_path: Path):
    every = {seed: {"seed": seed, "reached": list(rare.NAMES)} for seed in range(nightly.SEEDS_FOR_ALL)}
    assert nightly.verdict(every) == 0
    lacking = {seed: {"seed": seed, "reached": list(rare.NAMES[1:])} for seed in every}
    assert nightly.missing(lacking) == [rare.NAMES[0]]
    assert nightly.verdict(lacking) == 1
    assert nightly.verdict({1: lacking[1]}) == 0  # with few seeds no path has to be reached
    assert nightly.verdict({1: {"seed": 1, "failed": "torn"}}) == 1


def test_results_are_kept_by_seed(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"seed": 1, "failed": "torn"}\n{"seed": 2, "reached": []}\n{"seed": 1, "reached": []}\n')
    assert nightly.load(path) == {1: {"seed": 1, "reached": []}, 2: {"seed": 2, "reached": []}}
