"""`odradek.unittest`, run by `python -m unittest`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import unittest
from confluent_kafka import Producer
from odradek.unittest import OdradekMixin, OdradekTestCase

seen = []

def commit(broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"paid")
    producer.commit_transaction()

class Payments(OdradekTestCase):
    odradek_options = {"topics": ["orders:1"]}

    def test_one(self):
        seen.append(self.broker)
        self.assertEqual(self.broker.records("orders"), [])
        commit(self.broker)
        self.broker.assert_exactly_once("orders", ["paid"])

    test_another = test_one

class Waiting(OdradekMixin, unittest.IsolatedAsyncioTestCase):
    odradek_options = {"topics": ["orders:1"]}

    async def test_the_same_broker_is_clean_again(self):
        seen.append(self.broker)
        self.assertEqual(self.broker.records("orders"), [])
        commit(self.broker)
        self.broker.assert_committed("payments")

class WithOtherOptions(OdradekTestCase):
    odradek_options = {"nodes": 2}

    def test_other_options_are_another_broker(self):
        self.assertEqual(len(self.broker.nodes), 2)
        self.assertEqual(len({id(each) for each in seen}), 1)

    def test_a_failure_names_what_is_missing(self):
        commit(self.broker)
        self.broker.assert_exactly_once("orders", ["paid", "shipped"])
"""


def test_each_test_has_a_clean_broker_and_a_failure_tells(tmp_path: Path) -> None:
    (tmp_path / "test_payments.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert "Ran 5 tests" in done.stderr, done.stderr
    assert "FAILED (failures=1)" in done.stderr, done.stderr
    assert "shipped" in done.stderr
    assert "transactional id payments" in done.stderr  # the transaction's timeline
