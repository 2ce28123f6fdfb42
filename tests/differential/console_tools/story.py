"""Base class of stories of commands.

A story runs Kafka's console tools, one after the other, on resources with names of its own. The normalised output and exit
code of each command go into the transcript, which is compared.

    @story("kafka-topics")
    def created_twice(s):
        s.run(f"--create --topic {s.name('orders')}")
        s.run(f"--create --topic {s.name('orders')}")

The broker's address is added to each command. A story prepares with raw requests (`quiet`), a producer or a running
consumer; none of that is in the transcript.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.differential.console_tools.normal import PLAIN, Shown, TextNormal
from tests.differential.story import Body, Entry, Story
from tests.support.deadlines import HANG_S, Deadline, Stopwatch
from tests.support.java import KAFKA_VERSION
from tests.support.javaprog import Ran, java_clients

TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    # Kafka has no script for these two. Its own system tests start them.
    "ClientCompatibilityTest": "org.apache.kafka.tools.ClientCompatibilityTest",
    "TransactionalMessageCopier": "org.apache.kafka.tools.TransactionalMessageCopier",
}
"""Main class of each of Kafka's shell scripts."""
if tuple(map(int, KAFKA_VERSION.split(".")[:2])) < (4, 4):
    TOOLS["kafka-configs"] = "kafka.admin.ConfigCommand"

INPUT_SHOWN: Final = 60
"""Maximum characters of a tool's standard input in the transcript."""

AGAIN_S: Final = 0.02
LONG_S: Final = 2.0
"""Seconds after which a command is reported as slow, to keep stories short."""

STORIES: dict[str, Entry] = {}


def story(tool: str, profile: str = "main") -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Decorator: register a story of a tool, which runs on a broker of this profile (see sides.PROFILES)."""

    def register(run: Callable[[Any], None]) -> Callable[[Any], None]:
        entry = Entry(tool, run.__name__, run, profile)
        assert tool in TOOLS
        assert entry.id not in STORIES, entry.id
        STORIES[entry.id] = entry
        return run

    return register


def _words(arguments: Iterable[object]) -> Iterator[str]:
    """Split arguments as a shell does: a text with spaces is several arguments, unless it is quoted."""
    for argument in map(str, arguments):
        yield from shlex.split(argument) if " " in argument else (argument,)


@dataclass
class ToolStory(Story):
    data_dir: Path = field(default=Path(), kw_only=True)
    """Data directory of the broker, or of one node."""
    sasl_port: int = field(default=0, kw_only=True)
    """Port of the SASL listener, 0 without one."""
    words: TextNormal = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Names end in two dashes after the story's name, so that a story finds its own names in lists of all resources.
        self.prefix += "-"
        self._scratch = tempfile.TemporaryDirectory(prefix="console-tools-")
        self.words = self._words({self.data_dir: "data", Path(self._scratch.name): "."})
        self._clients: list[str] = []

    def _words(self, paths: Mapping[Path, str]) -> TextNormal:
        ports = {self.port: "port"} | ({self.sasl_port: "sasl port"} if self.sasl_port else {})
        return TextNormal(self.prefix, ports, paths)

    def close(self, on: str | None = None) -> None:
        super().close(on)
        if on is None:
            for client in self._clients:
                with contextlib.suppress(Exception):
                    java_clients().ask("close", on=client)
            self._clients.clear()
            self._scratch.cleanup()

    # -- commands ------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def run(
        self,
        *arguments: object,
        tool: str | None = None,
        input: str = "",
        at: Sequence[object] | None = None,
        show: Shown = PLAIN,
        until: str = "",
        until_gone: str = "",
    ) -> Ran:
        """Run one command. An argument may be a text of several words. ``at`` replaces the option with the broker's address.

        ``until`` and ``until_gone`` are patterns that the output must have, or must not have: the command is repeated until
        then, as a Kafka broker learns of its controller's changes later. Only the last run is in the transcript.
        """
        where = ("--bootstrap-server", self.bootstrap) if at is None else at
        tool = tool or self.entry.area
        words = list(_words(arguments))
        watch, deadline = Stopwatch(), Deadline(HANG_S)
        while True:
            ran = java_clients().tool(TOOLS[tool], *where, *words, input=input)
            is_over = not until_gone or re.search(until_gone, ran.out) is None
            if (is_over and re.search(until, ran.out) is not None) or deadline.is_over:
                break
            time.sleep(AGAIN_S)
        label = " ".join([tool, *words]) + (f" <<< {input[:INPUT_SHOWN]!r}" if input else "")
        self._keep(label, ran, show)
        if watch.has_run_s(LONG_S):
            print(f"    {watch.run_s:.1f} s: {self.transcript[-1]['ask']}", flush=True)
        return ran

    def run_until(self, line: str, *arguments: object, show: Shown = PLAIN) -> Ran:
        """Run a command that does not end by itself, and stop it at the first line that matches the pattern."""
        words = list(_words(arguments))
        ran = java_clients().until(line, TOOLS[self.entry.area], *words)
        self._keep(" ".join([self.entry.area, *words]), ran, show)
        return ran

    def _keep(self, label: str, ran: Ran, show: Shown) -> None:
        answer = {
            "status": ran.status,
            "out": self.words.lines(ran.out, show),
            "err": self.words.lines(ran.err, show),
        }
        self.put(self.words.label(label), answer)

    def file(self, name: str, content: object) -> Path:
        """Write a file for a command: JSON, unless ``content`` is a text."""
        path = Path(self._scratch.name) / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    @property
    def impatient(self) -> tuple[object, ...]:
        """Options for a command that would otherwise retry for a minute."""
        properties = "default.api.timeout.ms=1000\nrequest.timeout.ms=500\n"
        return ("--command-config", self.file("impatient.properties", properties))

    # -- preparations --------------------------------------------------------------------------------------------

    def orders(self, partitions: int = 1, name: str = "orders", **configs: str) -> str:
        """Create a topic and return its name."""
        name = self.name(name)
        settings = [{"name": key.replace("__", "."), "value": value} for key, value in configs.items()]
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        self.quiet("create_topics", 7, retry=(), topics=[row])
        self.wait_for(name, partitions)
        return name

    def write(self, topic: str, *values: str, partition: int = 0) -> None:
        """Produce records without keys, with the story's timestamps."""
        data = self.batch([value.encode() for value in values])
        self.quiet("produce", 9, **of_one_batch(topic, data, None, partition))

    def begin(
        self, name: str, topic: str, *, timeout_ms: int = 60_000, age_ms: int = 0, **fields: Any
    ) -> tuple[int, int]:
        """Begin a transaction with one record of this age, and return (producer id, epoch). ``fields`` are for its batch."""
        transactional_id = self.name(name)
        producer_id, epoch = self.producer_id(transactional_id, timeout_ms)
        values = fields.pop("values", [name.encode()])
        data = self.batch(
            values, pid=producer_id, epoch=epoch, seq=0, txn=True, ts=self.t0 - age_ms, **fields
        )
        self.quiet("produce", 12, **of_one_batch(topic, data, transactional_id))
        return producer_id, epoch

    def end(self, name: str, producer: tuple[int, int], *, committed: bool) -> None:
        producer_id, epoch = producer
        who: dict[str, Any] = {
            "transactional_id": self.name(name),
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        self.quiet("end_txn", 5, **who, committed=committed)
        self.settle(self.name(name))

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """Commit offsets of the first partitions, for a group without members."""
        rows = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in enumerate(offsets)
        ]
        body: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        self.quiet("offset_commit", 8, **body, topics=[{"name": topic, "partitions": rows}])

    @contextlib.contextmanager
    def consumer(self, group: str, *topics: str, count: int = 1, **config: str) -> Iterator[str]:
        """Context manager: run a consumer with assigned partitions; yields its member id."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "client.id": "member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        java = java_clients()
        client = str(java.ask("consumer", config=settings))
        self._clients.append(client)
        java.ask("subscribe", on=client, topics=list(topics))
        deadline = Deadline(HANG_S)
        while len(java.ask("assignment", on=client)) < count:
            java.ask("poll", on=client, timeout_ms=100)
            deadline.check(f"{group} has assigned {count} partitions")
        try:
            yield client
        finally:
            java.ask("close", on=client)
            self._clients.remove(client)


def of_one_batch(
    topic: str, data: bytes, transactional_id: str | None = None, partition: int = 0, acks: int = -1
) -> Body:
    """Body of a Produce request with one batch, before version 13."""
    rows = [{"name": topic, "partition_data": [{"index": partition, "records": data}]}]
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 10_000, "topic_data": rows}
