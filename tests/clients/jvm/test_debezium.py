"""Debezium: Connect copies the rows of a table into a topic exactly once.

Debezium's schema history and Connect's offsets are in topics too.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.jvm.kills import SETTINGS, Kill, run
from tests.clients.jvm.test_connect import ConnectLoop, Worker
from tests.support.broker import StartBroker
from tests.support.clients import eventually, values
from tests.support.jvm import jvm_program
from tests.support.postgres import DATABASE, PASSWORD, USER, PostgresServer

pytestmark = [pytest.mark.foreign, pytest.mark.client("Debezium")]


class DebeziumLoop(ConnectLoop):
    """A loop over rows: earlier rows come from the connector's snapshot, later rows from the database's write-ahead log.

    An interrupted snapshot starts from the beginning, so the kills begin after the first row of the write-ahead log.
    """

    name = "debezium"
    framework = "debezium"
    topics = ("shop.public.orders:1",)
    output = "shop.public.orders"
    converter = "org.apache.kafka.connect.json.JsonConverter"
    before = tuple(-number for number in range(1, 21))
    behind = -100
    # Without a sink connector the only group is that of the workers.
    deaths = tuple(point for point in ConnectLoop.deaths if not point.startswith("group."))

    def open(self) -> None:
        self._databases = ExitStack()
        self.database = self._databases.enter_context(PostgresServer())
        self.database.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
        self.database.execute(
            f"INSERT INTO orders SELECT -i FROM generate_series(1, {len(self.before)}) AS i"
        )

    def close(self) -> None:
        self._databases.close()

    def create_connectors(self, worker: Worker) -> None:
        super().create_connectors(worker)
        eventually(
            lambda: len(self.captured()) == len(self.before), "the rows of the snapshot are in the topic"
        )
        self.database.execute(f"INSERT INTO orders VALUES ({self.behind})")
        eventually(lambda: self.behind in self.captured(), "a row after the snapshot is in the topic")

    def captured(self) -> list[int]:
        found = values(self.broker.bootstrap, self.output)
        return [json.loads(value or "null")["payload"]["id"] for value in found]

    def connectors(self) -> dict[str, dict[str, str]]:
        return {
            "source": {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.hostname": "127.0.0.1",
                "database.port": str(self.database.port),
                "database.user": USER,
                "database.password": PASSWORD,
                "database.dbname": DATABASE,
                "plugin.name": "pgoutput",
                "topic.prefix": "shop",
                "table.include.list": "public.orders",
                "poll.interval.ms": "50",
                "exactly.once.support": "required",
                "transforms": "unwrap",
                "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            }
        }

    def feed(self, first: int, count: int) -> None:
        last = first + count - 1
        self.database.execute(f"INSERT INTO orders SELECT i FROM generate_series({first}, {last}) AS i")

    def is_done(self, count: int) -> bool:
        return len(self.captured()) >= len(self.before) + 1 + count

    def check(self, count: int) -> None:
        assert self.captured() == [*self.before, self.behind, *range(count)]


@pytest.mark.postgres
@pytest.mark.feature(
    "exactly-once loop", "exactly-once loop, members killed", "exactly-once loop, broker killed"
)
def test_rows_are_captured_once_whatever_is_killed(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=DebeziumLoop.topics, settings=SETTINGS)
    run(DebeziumLoop(broker, tmp_path), [Kill("broker", "txn.complete.before:2"), Kill("member", after=10)])


@pytest.mark.feature("state stores and internal topics")
def test_offsets_and_schemas_of_an_embedded_engine_outlive_it_and_the_broker(
    start_broker: StartBroker, tmp_path: Path
):
    broker = start_broker()
    program, file = jvm_program("debezium", "Engine"), tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(5)))
    with program.start(broker.bootstrap, file) as engine:
        engine.expect("event", lambda event: event["payload"] == "line 4")
        first = engine.kill()
    broker.kill()
    broker.restart()
    with file.open("a") as lines:
        lines.write("line 5\nline 6\n")
    with program.start(broker.bootstrap, file) as engine:
        engine.expect("event", lambda event: event["payload"] == "line 6")
        second = engine.finish()
    assert [each["tables"] for each in first + second if "tables" in each] == [0, 1]
    read = [[each["event"]["payload"] for each in said if "event" in each] for said in (first, second)]
    assert read == [[f"line {number}" for number in range(5)], ["line 5", "line 6"]]
