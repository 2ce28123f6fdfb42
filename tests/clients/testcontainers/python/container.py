"""Uses `odradek.testcontainers` like a test suite: `python container.py IMAGE`. Prints its findings as JSON."""

import json
import sys
from typing import Any

from confluent_kafka import Producer

from odradek import BrokerFailed
from odradek.testcontainers import OdradekContainer

WITHIN_S = 60
# The advertised address for clients outside is a mapped port, which does not work inside the container.
INSIDE = "localhost:19092"
image = sys.argv[1]


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def commit(broker: OdradekContainer, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce("orders", value)
    producer.commit_transaction(WITHIN_S)


with OdradekContainer(
    image, topics=["orders:2"], settings={"auto.create.topics.enable": False}, nodes=3
) as broker:
    with broker.trace, broker.faults.add("EndTxn", do="lose-answer", times=1) as rule:
        commit(broker, "paid")
        say(hits=rule.wait().hits, end_txns=len(broker.trace.entries(api="EndTxn")))
    say(state=broker.transactions["payments"].state, events=bool(broker.timeline("payments").events))
    broker.assert_exactly_once("orders", ["paid"])
    before = broker.clock.now_ms
    broker.clock.advance("7d")
    say(days=(broker.clock.now_ms - before) // 86_400_000, nodes=len(broker.nodes))
    broker.nodes[2].kill()
    broker.reset()
    say(states=[node["state"] for node in broker.nodes.show()], transactions=broker.transactions.list())
    commit(broker, "paid again")
    metadata = Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=WITHIN_S)
    say(brokers=len(metadata.brokers), servers=len(broker.bootstrap_servers.split(",")))

with OdradekContainer(image, topics=["orders:1"]) as broker:
    # Commands that people and start scripts run in a container.
    for command in (
        "odradek topic list --json | grep -o orders",
        f"kafka-topics --bootstrap-server {INSIDE} --list",
        f"echo hello | /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server {INSIDE} --topic orders",
        f"kafka-console-consumer --bootstrap-server {INSIDE} --topic orders --from-beginning --max-messages 1 2>&-",
        "odradek fault add 'EndTxn -> drop'",
        "odradek health --bootstrap '[::1]:9092' | cut -d: -f1-4",
    ):
        code, output = broker.exec(["sh", "-c", command])
        say(code=code, said=output.decode().strip().splitlines()[:1])

with OdradekContainer(image, nodes=2, tls=True, users={"alice": "secret"}, topics=["orders:1"]) as broker:
    config = broker.client_config("alice", mechanism="SCRAM-SHA-256")
    metadata = Producer(config).list_topics(timeout=WITHIN_S)
    certificates = broker.authority.directory
    code, output = broker.exec(["sh", "-c", "odradek topic list --json | grep -o orders"])
    say(brokers=len(metadata.brokers), protocol=config["security.protocol"], said=output.decode().strip())
say(certificates=certificates.exists())

for settings in ({"num.partitions": "many"}, {"log.dirs": "/records"}):
    try:
        OdradekContainer(image, settings=settings).start()
    except BrokerFailed as error:
        say(failed=[word for word in ("num.partitions", "--tmpfs /records") if word in str(error)])
