"""Tools for clusters: kafka-leader-election, kafka-reassign-partitions with throttles, kafka-log-dirs.

Also the output of other tools about nodes that are down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.differential.console_tools.nodes import NodesStory
from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.stories.clients import SUPPORTED
from tests.differential.console_tools.story import of_one_batch, story

SORTED = Shown(sorted=True)
MOVES = Shown(sorted=True, hidden=(r'"log_dirs":(\[[^]]*\])',))
"""Hides log directories, which differ between the sides."""


def partition(s: NodesStory, topic: str, index: int = 0) -> tuple[object, ...]:
    return ("--topic", topic, "--partition", index)


@story("kafka-leader-election", profile="nodes")
def of_preferred_leaders(s: NodesStory) -> None:
    orders = s.cluster.topic([[2, 1, 3], [3, 2, 1]])
    preferred = ("--election-type", "PREFERRED")
    s.kill(2)
    s.cluster.await_leader(orders, 1)
    s.run(*preferred, *partition(s, orders.name))
    s.start(2)
    s.cluster.await_isr(orders, {1, 2, 3})
    s.run(*preferred, *partition(s, orders.name))
    s.run(*preferred, *partition(s, orders.name))
    s.cluster.await_leader(orders, 2)
    s.run(f"--describe --topic {orders.name}", tool="kafka-topics")
    s.run(*preferred, *partition(s, orders.name, 7))
    s.run(*preferred, *partition(s, s.name("nowhere")))
    both = [{"topic": orders.name, "partition": index} for index in (0, 1)]
    s.run(*preferred, "--path-to-json-file", s.file("both.json", {"partitions": both}), show=SORTED)
    broken = [*both, {"topic": s.name("nowhere"), "partition": 0}]
    s.run(*preferred, "--path-to-json-file", s.file("broken.json", {"partitions": broken}), show=SORTED)
    s.run(*preferred, "--path-to-json-file", s.file("twice.json", {"partitions": [both[0], both[0]]}))
    s.run(*preferred, "--path-to-json-file", s.file("none.json", "{"))
    s.run("--election-type RANDOM", *partition(s, orders.name))
    s.run(*preferred)


@story("kafka-leader-election", profile="nodes")
def of_unclean_leaders(s: NodesStory) -> None:
    orders = s.cluster.topic([[2, 3]], min__insync__replicas="1")
    unclean = ("--election-type", "UNCLEAN", *partition(s, orders.name))
    s.put_records(orders, "on both", at=2)
    s.run(*unclean)
    s.kill(3)
    s.cluster.await_isr(orders, {2})
    s.put_records(orders, "on one", at=2)
    s.kill(2)
    s.start(3)
    s.cluster.await_leader(orders, -1)
    s.run("--election-type PREFERRED", *partition(s, orders.name))
    s.run(f"--describe --topic {orders.name}", tool="kafka-topics")
    s.run(f"--describe --topic {orders.name} --unavailable-partitions", tool="kafka-topics")
    s.run(*unclean)
    s.cluster.await_leader(orders, 3)
    s.run(f"--describe --topic {orders.name}", tool="kafka-topics")
    s.run(f"--topic {orders.name}", tool="kafka-get-offsets")


def moves(s: NodesStory, *rows: tuple[str, int, Sequence[int]], version: int = 1) -> tuple[object, ...]:
    """A reassignment file: partitions with their new replicas."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": ["any"] * len(replicas)}
        for topic, index, replicas in rows
    ]
    file = s.file("moves.json", {"version": version, "partitions": partitions})
    return ("--reassignment-json-file", file)


@story("kafka-reassign-partitions", profile="nodes")
def moved_with_throttles(s: NodesStory) -> None:
    orders = s.cluster.topic([[1, 2]], min__insync__replicas="1")
    s.put_records(orders, "before", at=1)
    move = moves(s, (orders.name, 0, (3, 2)))
    s.run(*move, "--execute --throttle 1000000", show=MOVES)
    s.cluster.until(lambda: replicas(s, orders.name) == [3, 2], "the partition has moved")
    s.run("--list")
    topic = ("--entity-type", "topics", "--entity-name", orders.name)
    s.run("--describe", *topic, tool="kafka-configs", show=SORTED)
    s.run("--describe --entity-type brokers --entity-name 1", tool="kafka-configs", show=SORTED)
    s.run(*move, "--verify --preserve-throttles", show=SORTED)
    s.run(*move, "--verify", show=SORTED)
    s.run("--describe", *topic, tool="kafka-configs")
    s.run("--describe --entity-type brokers --entity-name 1", tool="kafka-configs", until_gone="throttled")
    s.run(*move, "--verify", show=SORTED)
    s.run(f"--describe --topic {orders.name}", tool="kafka-topics")
    s.kill(2)
    s.cluster.await_leader(orders, 3)
    s.cluster.await_isr(orders, {3})
    one = f"--topic {orders.name} --from-beginning --max-messages 1 --timeout-ms 20000"
    s.run(one, tool="kafka-console-consumer")


def replicas(s: NodesStory, topic: str) -> list[int]:
    found = s.cluster.partitions(topic, s.cluster.home).get(0, {})
    return list(found.get("replica_nodes", ()))


@story("kafka-reassign-partitions", profile="nodes")
def given_up(s: NodesStory) -> None:
    """A reassignment whose new replica cannot fetch from the leader is cancelled while it is in progress."""
    orders = s.cluster.topic([[1, 2]], min__insync__replicas="1")
    others = s.cluster.topic([[2, 1]], min__insync__replicas="1")
    s.stage.cut(1, 3)
    move = moves(s, (orders.name, 0, (1, 3)))
    s.run(*move, "--execute", show=MOVES)
    s.run("--list")
    s.run(*move, "--verify", show=SORTED)
    s.run(f"--describe --topic {orders.name}", tool="kafka-topics", until="Adding Replicas: 3")
    other = moves(s, (others.name, 0, (1, 2)))
    s.run(*other, "--execute", show=MOVES)
    s.run(*other, "--execute --additional", show=MOVES)
    move = moves(s, (orders.name, 0, (1, 3)))
    s.run(*move, "--cancel", show=SORTED)
    s.run(*move, "--cancel", show=SORTED)
    s.run("--list")
    s.run(*move, "--verify", show=SORTED)


@story("kafka-reassign-partitions", profile="nodes")
def with_more_and_fewer_replicas(s: NodesStory) -> None:
    orders = s.cluster.topic([[1], [2]], min__insync__replicas="1")
    s.run(
        *moves(s, (orders.name, 0, (1, 2, 3))), "--execute --disallow-replication-factor-change", show=MOVES
    )
    more = moves(s, (orders.name, 0, (1, 2, 3)), (orders.name, 1, (3,)))
    s.run(*more, "--execute", show=MOVES)
    s.cluster.await_isr(orders, {1, 2, 3})
    s.cluster.until(
        lambda: (
            not s.cluster.look(3, "list_partition_reassignments", 0, timeout=10_000, topics=None)["topics"]
        ),
        "all partitions have moved",
    )
    s.run(*more, "--verify", show=SORTED)
    s.run(f"--describe --topic {orders.name}", tool="kafka-topics")
    s.run(*moves(s, (orders.name, 0, (1,)), (orders.name, 1, (2,))), "--verify", show=SORTED)


@story("kafka-reassign-partitions", profile="nodes")
def refused(s: NodesStory) -> None:
    orders = s.cluster.topic([[1, 2]]).name
    nowhere = s.name("nowhere")
    for rows in (
        [(orders, 0, (1, 9))],
        [(orders, 0, (1, 1))],
        [(orders, 0, ())],
        [(orders, 7, (1, 2))],
        [(nowhere, 0, (1, 2))],
        [(orders, 0, (1, 3)), (orders, 0, (1, 2))],
        [],
    ):
        s.run(*moves(s, *rows), "--execute", show=MOVES)
    s.run(*moves(s, (orders, 0, (1, 3)), version=2), "--execute", show=MOVES)
    s.run("--reassignment-json-file", s.file("broken.json", "{"), "--execute")
    s.run(*moves(s, (orders, 7, (1, 2)), (nowhere, 0, (1, 2))), "--verify", show=SORTED)
    s.run(*moves(s, (orders, 7, (1, 2)), (nowhere, 0, (1, 2))), "--cancel", show=SORTED)
    topics = s.file("topics.json", {"version": 1, "topics": [{"topic": nowhere}]})
    s.run(f"--topics-to-move-json-file {topics} --broker-list 1,2,3 --generate")
    topics = s.file("topics.json", {"version": 1, "topics": [{"topic": orders}]})
    s.run(f"--topics-to-move-json-file {topics} --broker-list 1 --generate")
    s.run(f"--topics-to-move-json-file {topics} --broker-list 1,9 --generate")
    proposed = Shown(hidden=(*MOVES.hidden, r'"replicas":\[(\d,\d)\]'))
    s.run(f"--topics-to-move-json-file {topics} --broker-list 1,2,3 --generate", show=proposed)


@story("kafka-log-dirs", profile="nodes")
def of_three_nodes(s: NodesStory) -> None:
    orders = s.cluster.topic([[1, 2]])
    s.put_records(orders, "x" * 1000, at=1)
    s.cluster.await_replicated(orders, 1, at=(1, 2))
    sizes = Shown(hidden=(r'"(?:total|usable)Bytes":(\d+)', r'"error":null,"logDir":"([^"]*)"'))
    s.run(f"--describe --topic-list {orders.name}", show=sizes)
    s.run(f"--describe --topic-list {orders.name} --broker-list 2,3", show=sizes)
    s.kill(2)
    s.run(f"--describe --topic-list {orders.name}", show=sizes)
    s.run(f"--describe --topic-list {orders.name} --broker-list 1,2", show=sizes)


@story("kafka-cluster", profile="nodes")
def of_fenced_and_unregistered_nodes(s: NodesStory) -> None:
    where = ("--bootstrap-server", s.bootstrap_of(1))
    ports = Shown(hidden=(r"127\.0\.0\.1 (\d+)",), sorted=True)
    s.run("list-endpoints --include-fenced-brokers", *where, at=(), show=ports)
    s.kill(2)
    s.run("list-endpoints", *where, at=(), show=ports)
    s.run("list-endpoints --include-fenced-brokers", *where, at=(), show=ports)
    s.run("unregister --id 2", *where, at=())
    s.run("list-endpoints --include-fenced-brokers", *where, at=(), show=ports)
    s.run("unregister --id 2", *where, at=())
    s.start(2)
    s.run("list-endpoints --include-fenced-brokers", *where, at=(), show=ports)


@story("kafka-topics", profile="nodes")
def of_nodes_that_are_gone(s: NodesStory) -> None:
    orders = s.cluster.topic([[1, 2, 3], [2, 3, 1]])
    single = s.cluster.topic([[2]], min__insync__replicas="1")
    pair = s.cluster.topic([[3, 2]])
    s.kill(2)
    s.cluster.await_leader(orders, 3, 1)
    s.cluster.await_isr(orders, {1, 3})
    s.cluster.await_isr(pair, {3})
    every = ("--topic", s.name(".*"))
    s.run("--describe", *every, show=SORTED)
    for filter in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        s.run("--describe", *every, f"--{filter}-partitions", show=SORTED)
    s.run(f"--create --topic {s.name('wide')} --partitions 1 --replication-factor 3")
    s.run(f"--create --topic {s.name('wider')} --partitions 1 --replication-factor 4")
    s.run(f"--create --topic {s.name('there')} --replica-assignment 2:1")
    s.run(f"--create --topic {s.name('gone')} --replica-assignment 1:2,2")
    s.run(f"--create --topic {s.name('gone')} --replica-assignment 2")
    s.run(f"--alter --topic {orders.name} --partitions 3")
    s.run(f"--describe --topic {s.name('there')}")
    s.run(
        f"--describe --topic {s.name('wide')}",
        show=Shown(hidden=(r"Leader: (\d)", r"Replicas: (\S+)", r"Isr: (\S+)")),
    )
    s.run(f"--topic {single.name}", *s.impatient, tool="kafka-get-offsets")
    s.run(f"--delete --topic {single.name}")
    s.run("--list", show=Shown(only=s.prefix, sorted=True))


@story("kafka-metadata-quorum", profile="nodes")
def of_a_quorum(s: NodesStory) -> None:
    columns = ("DirectoryId", "LogEndOffset", "LastFetchTimestamp", "LastCaughtUpTimestamp")
    s.run("describe --replication", show=Shown(hidden_columns=columns, sorted=True))
    s.kill(3)
    s.run("describe --replication", show=Shown(hidden_columns=columns, sorted=True))


@story("kafka-transactions", profile="nodes")
def of_several_coordinators(s: NodesStory) -> None:
    orders = s.cluster.topic([[1, 2, 3]])
    for by in ((2, 3, 1), (3, 1, 2)):
        name = s.cluster.coordinated(by, f"by-{by[0]}-")
        body: dict[str, Any] = {"transactional_id": name, "transaction_timeout": 60_000}
        found = s.cluster.quiet("init_producer_id", 4, at=by[0], **body)
        data = s.batch(1, pid=found["producer_id"], epoch=found["producer_epoch"], seq=0, txn=True)
        s.cluster.quiet("produce", 12, at=1, **of_one_batch(orders.name, data, name))
    ids = Shown(symbols=("ProducerId",), sorted=True)
    s.run("list", show=ids)
    for node_id in (1, 2):
        s.run("describe-producers", *partition(s, orders.name), f"--broker-id {node_id}", show=ids)
    s.kill(2)
    s.cluster.await_leader("__transaction_state", 3, 1)
    s.run("list", show=ids)


@story("ClientCompatibilityTest", profile="nodes")
def on_three_nodes(s: NodesStory) -> None:
    orders = s.cluster.topic([[1, 2, 3]])
    common = ("--topic", orders.name, SUPPORTED, "--describe-acls-supported True")
    s.run(*common, "--num-cluster-nodes 3")
    s.run("--delete --topic newtopic", tool="kafka-topics")
    s.run(*common, "--num-cluster-nodes 2")


@story("kafka-replica-verification", profile="nodes")
def of_three_replicas(s: NodesStory) -> None:
    """kafka-replica-verification runs until it is stopped; its first lines may list replicas that have not caught up."""
    orders = s.cluster.topic([[2, 1, 3]])
    for value in ("one", "two", "three"):
        s.put_records(orders, value, at=2)
    every = ("--broker-list", s.bootstrap, "--report-interval-ms 10 --topics-include", orders.name)
    same = Shown(only="started|max lag is 0 for .* at offset 3")
    s.run_until("max lag is 0 for .* at offset 3 ", *every, show=same)
    s.run(*every[:3], s.name("nowhere"), at=())
