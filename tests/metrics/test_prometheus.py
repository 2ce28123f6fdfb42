"""Debian's Prometheus scrapes a broker with load, and the queries of the dashboard return series."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek import Broker
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S, TEST_S
from tests.support.raw import free_port

pytestmark = [pytest.mark.prometheus, pytest.mark.more]
DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana" / "dashboard.json"
SCRAPE_S = 1


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[str]:
    """Start a Prometheus that scrapes the target each second, and yield its URL."""
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"},
        "scrape_configs": [{"job_name": "odradek", "static_configs": [{"targets": [target]}]}],
    }
    # Prometheus reads YAML, of which JSON is a subset.
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(HANG_S)


def query(url: str, expression: str) -> list[Any]:
    """The series of an instant query, none if Prometheus does not listen yet."""
    asked = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        with urllib.request.urlopen(asked, timeout=HANG_S) as answer:
            found = json.load(answer)
    except urllib.error.URLError:  # Prometheus does not listen yet
        return []
    assert found["status"] == "success", found
    return list(found["data"]["result"])


def work(bootstrap_servers: str, number: int) -> None:
    """Fence a producer whose transaction contains a consumer's offsets, and commit another transaction."""
    common = {"bootstrap.servers": bootstrap_servers}
    consumer = Consumer({**common, "group.id": "workers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    zombie = Producer({**common, "transactional.id": "payments"})
    zombie.init_transactions(TEST_S)
    zombie.begin_transaction()
    zombie.produce("orders", f"order-{number}")
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "an assignment", within_s=TEST_S)
    zombie.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TEST_S
    )
    successor = Producer({**common, "transactional.id": "payments"})
    successor.init_transactions(TEST_S)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TEST_S)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    successor.begin_transaction()
    successor.produce("orders", f"order-{number}")
    successor.commit_transaction(TEST_S)
    # The offsets were aborted together with the transaction of the fenced producer.
    consumer.commit(offsets=[TopicPartition("orders", 0, number)], asynchronous=False)
    consumer.close()


def panels() -> list[Any]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_each_question_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    with (
        Broker(topics={"orders": 2}) as broker,
        prometheus(urllib.parse.urlsplit(broker.control_url).netloc, tmp_path) as url,
    ):
        eventually(lambda: query(url, "kafka_brokers"), "the first scrape", within_s=TEST_S)
        work(broker.bootstrap_servers, 1)
        eventually(lambda: query(url, "odradek_fenced_producers_total"), "they are scraped", within_s=TEST_S)
        work(broker.bootstrap_servers, 2)
        for panel in panels():
            for target in panel["targets"]:
                expression = (
                    target["expr"].replace("$job", "odradek").replace("$__rate_interval", f"{60 * SCRAPE_S}s")
                )
                found = eventually(partial(query, url, expression), panel["title"], within_s=TEST_S)
                labels = set(found[0]["metric"])
                shown = {word.split("}}")[0] for word in target["legendFormat"].split("{{")[1:]}
                assert shown <= labels, f"{panel['title']}: {shown} of {labels}"
        (lag,) = query(url, 'kafka_consumergroup_lag_sum{consumergroup="workers"}')
        assert float(lag["value"][1]) >= 0
