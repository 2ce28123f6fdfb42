"""Signals, kills and restarts of a container: it stops on SIGTERM and SIGINT, and loses no acknowledged record."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaException, Producer

from tests.support.clients import PATIENCE, eventually
from tests.support.deadlines import HANG_S
from tests.support.docker import Container, Docker, committed
from tests.support.raw import free_port

pytestmark = [pytest.mark.docker, pytest.mark.slow]

TRANSACTIONS_BETWEEN = 25
RESTARTS = ("restart", "kill", "stop", "kill")


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_a_signal_ends_a_broker_that_serves(docker: Docker, signal: str):
    with docker.container() as broker:
        broker.until_healthy()
        docker("kill", "--signal", signal, broker.name)
        assert broker.until_over() == 0
        assert '"event": "stopping"' in broker.log


@pytest.mark.parametrize("attempt", range(8))
def test_sigterm_works_from_the_first_moment_on(docker: Docker, attempt: int):
    """SIGTERM stops the container even at its start: as soon as the engine accepts it, or ``attempt`` engine calls later."""
    with docker.container() as broker:
        for _ in range(attempt):
            docker("inspect", broker.name)
        docker("kill", "--signal", "TERM", broker.name)
        assert broker.until_over() == 0
        assert "SIGTERM" in broker.log


class Transactions(threading.Thread):
    """A producer that commits one record after another until it is stopped.

    It retries each commit until the outcome is known.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.is_over = threading.Event()
        self.failure: Exception | None = None
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "through-restarts", **PATIENCE}
        )

    def run(self) -> None:
        try:
            self._producer.init_transactions(HANG_S)
            while not self.is_over.is_set():
                self._commit(str(self.count))
                self.count += 1
        except Exception as failure:
            self.failure = failure

    def _commit(self, value: str) -> None:
        while True:
            self._producer.begin_transaction()
            self._producer.produce("orders", value)
            try:
                return _tried_again(self._producer.commit_transaction)
            except KafkaException as refused:
                if not refused.args[0].txn_requires_abort():
                    raise
                _tried_again(self._producer.abort_transaction)


def _tried_again(end: object) -> None:
    while True:
        try:
            end(HANG_S)  # type: ignore[operator]
            return
        except KafkaException as refused:
            if not refused.args[0].retriable():
                raise


def more(transactions: Transactions) -> None:
    wanted = transactions.count + TRANSACTIONS_BETWEEN
    eventually(lambda: transactions.failure or transactions.count >= wanted, "transactions are committed")
    assert transactions.failure is None


def again(docker: Docker, broker: Container, how: str) -> None:
    docker(how, broker.name)
    if how != "restart":
        docker("start", broker.name)


def test_restarts_and_kills_neither_lose_nor_duplicate_records(docker: Docker):
    port = str(free_port())
    with docker.container(["--publish", f"{port}:{port}"], ["--port", port]) as broker:
        broker.until_healthy()
        transactions = Transactions(f"localhost:{port}")
        transactions.start()
        more(transactions)
        for how in RESTARTS:
            again(docker, broker, how)
            more(transactions)
        transactions.is_over.set()
        transactions.join(HANG_S)
        assert transactions.failure is None
        expected = [str(number) for number in range(transactions.count)]
        # A record after the last one proves that the log contains no more.
        broker.says("odradek", "produce", "orders", "end", "-x", "end", "-b", f"localhost:{port}")
        assert committed(f"localhost:{port}", "orders", len(expected) + 1) == [*expected, "end"]


@pytest.mark.parametrize("path", ["/etc/odradek/server.properties", "/mnt/shared/config/server.properties"])
def test_a_file_without_log_dirs_keeps_the_records_in_the_volume(docker: Docker, path: str):
    with docker.container(files={path: "num.partitions=1\n"}) as broker:
        broker.until_healthy()
        broker.says("odradek", "produce", "orders", "paid", "-x", "shop")
        docker("kill", broker.name)
        docker("start", broker.name)
        broker.until_healthy()
        assert "paid" in broker.says("odradek", "consume", "orders")
