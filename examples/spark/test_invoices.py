"""Tests to copy: of the logic alone, with aborted transactions, and with a driver that is killed at a step of the sink."""

import json
import sys
from pathlib import Path

import invoices
import pytest

from odradek.spark.testing.driver import kill_driver_after, run_driver

JOB = Path(invoices.__file__)


def order(number: int) -> str:
    return json.dumps({"number": number, "customer": "ada", "net_cents": 100 * number})


def billed(kafka, topic: str) -> list[int]:
    """The numbers on the invoices that a read_committed consumer sees, in order."""
    return sorted(json.loads(record.text)["number"] for record in kafka.read(topic))


def test_tax_is_added_and_rounded(spark):
    orders = spark.createDataFrame([(1, "ada", 100), (2, "bob", 1)], invoices.ORDER)
    assert [tuple(row) for row in invoices.invoices(orders).collect()] == [(1, "ada", 119), (2, "bob", 1)]


def test_an_order_that_was_aborted_has_no_invoice(spark, kafka, tmp_path):
    orders, target = kafka.topic(), kafka.topic()
    kafka.produce(orders, [order(1)], transaction="commit")
    kafka.produce(orders, [order(2)], transaction="abort")
    kafka.produce(orders, ["no order", order(3)])
    open_order = kafka.begin(orders, [order(4)])

    invoices.main(kafka.bootstrap_servers, orders, target, str(tmp_path / "checkpoint"))
    assert billed(kafka, target) == [1, 3]

    open_order.commit()
    kafka.wait_for(orders, 4)
    invoices.main(kafka.bootstrap_servers, orders, target, str(tmp_path / "checkpoint"))
    assert billed(kafka, target) == [1, 3, 4]


@pytest.mark.parametrize("step", ["task.flushed", "decision.made"])
def test_a_driver_that_dies_leaves_one_invoice_for_each_order(kafka, tmp_path, step):
    orders, target = kafka.topic(partitions=2), kafka.topic(partitions=2)
    kafka.produce(orders, [(str(number), order(number)) for number in range(30)])
    job = [sys.executable, JOB, kafka.bootstrap_servers, orders, target, tmp_path / "checkpoint"]

    kill_driver_after(step, job, batch=1)
    assert len(billed(kafka, target)) < 30
    run_driver(job)

    assert billed(kafka, target) == list(range(30))
