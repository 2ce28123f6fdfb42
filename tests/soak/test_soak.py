"""Long tests for ``make soak``: the exactly-once demo with many seeds, and the memory of a broker under load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.broker import StartBroker
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LONG_TEST_S)]

SEEDS = range(100, 110)
TRANSACTIONS_PER_ROUND = 2_000
ROUNDS = 5
GROWTH_KIB_MAX = 6 * 1024
"""Allowed growth of the broker's memory from the second to the last round: some state grows, such as index tails."""


@pytest.mark.parametrize("seed", SEEDS)
def test_the_main_job_neither_loses_nor_duplicates_records(seed: int) -> None:
    command = [sys.executable, "-m", "odradek.demo.run", "--seed", str(seed)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=LONG_TEST_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "lost 0, duplicated 0" in finished.stdout


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("the process has no resident memory")


def test_memory_stays_flat_over_ten_thousand_transactions(start_broker: StartBroker) -> None:
    broker = start_broker(topics=["orders:2"])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "soak", "linger.ms": 0})
    producer.init_transactions()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "soak"})
    sizes = []
    for round_number in range(ROUNDS):
        for number in range(TRANSACTIONS_PER_ROUND):
            producer.begin_transaction()
            producer.produce("orders", key=str(number), value=f"{round_number}-{number}")
            position = [TopicPartition("orders", 0, number)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            if number % 10:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        sizes.append(resident_kib(broker.pid))
    consumer.close()
    assert sizes[-1] - sizes[1] < GROWTH_KIB_MAX, sizes
