"""Dynamic settings of topics and brokers that change during the workload (IncrementalAlterConfigs, KIP-226).

Invariants, in addition to the checks of the workload:

- From the acknowledgement of a change until the next one, every node has the value, and so do its logs, also after a
  restart. A change without a response may take effect as long as its frame may be in flight.
- A change that is refused, or only validated, changes nothing. A change of a read-only setting or to an invalid value is
  refused.
- ``max.message.bytes`` decides which batches are accepted, ``compression.type`` how they are stored, ``flush.messages`` what
  is on the disk at the acknowledgement of a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from broker.config.definitions import kafka_configs
from broker.node import Node
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.config import LogConfig
from tests.simulation.ledger import Broken, Spot
from tests.simulation.producers import PRODUCE
from tests.simulation.rare import (
    COMPRESSION_BY_SETTING,
    FLUSHED_BY_SETTING,
    REFUSED_BY_SETTING,
    SETTING_CHANGED,
    SETTING_REFUSED,
)
from tests.simulation.reach import Reach, Stage
from tests.simulation.wire import ASK_LEADER_AGAIN, LATE_MARGIN_MS, NONE, Gone, Wire

INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CONFIGS = 44, 32
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
TUNED: Final[Spot] = ("tuned", 0)
WORKED_ON: Final = "orders"
"""A topic that the workload's clients use, and whose settings `DynamicSettings` changes."""
PAUSE_S: Final = (1.5, 8.0)
PROBE_PAUSE_S: Final = (0.3, 3.0)
ONLY_VALIDATED: Final = 0.1
MISTAKES: Final = 0.1
SIZES: Final = (100, 900, 5_000)
OVERHEAD_BYTES: Final = 100
"""Maximum bytes of a batch with one record, without the record's value."""
CODECS: Final = {"producer": 0, "uncompressed": 0, "gzip": 1}


class Name(NamedTuple):
    """One setting of one topic or broker."""

    kind: int
    resource: str
    setting: str


class Mistake(NamedTuple):
    """A change that every broker must refuse."""

    name: Name
    value: str


MISTAKES_TO_MAKE: Final = (
    Mistake(Name(TOPIC, TUNED[0], "min.insync.replicas"), "0"),
    Mistake(Name(TOPIC, TUNED[0], "compression.type"), "lzma"),
    Mistake(Name(BROKER, "", "replica.lag.time.max.ms"), "1000"),
    Mistake(Name(BROKER, "1", "log.dirs"), "/nowhere"),
)


def choices(nodes: int, node_ids: Iterable[int]) -> dict[Name, tuple[str | None, ...]]:
    """The settings to change, with their values; None deletes the setting."""
    tuned, worked_on = TUNED[0], WORKED_ON
    lower = (None, "1", str(min(2, nodes)))
    found: dict[Name, tuple[str | None, ...]] = {
        Name(TOPIC, tuned, "max.message.bytes"): (None, "500", "2000", "100000"),
        Name(TOPIC, tuned, "compression.type"): (None, "producer", "gzip", "uncompressed"),
        Name(TOPIC, tuned, "flush.messages"): (None, "1", "1", "5"),
        Name(TOPIC, tuned, "min.insync.replicas"): (*lower, str(nodes)),
        Name(TOPIC, tuned, "retention.ms"): (None, "9000000000", "-1"),
        Name(TOPIC, worked_on, "min.insync.replicas"): lower,
        Name(TOPIC, worked_on, "flush.messages"): (None, "1", "20"),
        Name(TOPIC, worked_on, "segment.ms"): (None, "2000", "600000"),
        Name(TOPIC, worked_on, "index.interval.bytes"): (None, "100", "4096"),
        Name(BROKER, "", "log.cleaner.backoff.ms"): (None, "500", "20000"),
        Name(BROKER, "", "log.flush.interval.messages"): (None, "2", "1000"),
        Name(BROKER, "", "log.index.interval.bytes"): (None, "300", "4096"),
        Name(BROKER, "", "log.cleaner.min.cleanable.ratio"): (None, "0.01", "0.9"),
    }
    for node_id in node_ids:
        found[Name(BROKER, str(node_id), "log.cleaner.backoff.ms")] = (None, "700", "30000")
    return found


@dataclass(slots=True)
class History:
    """Possible values of a setting: the last acknowledged value, and the values of requests without a response."""

    value: str | None = None
    pending: list[tuple[str | None, int]] = field(default_factory=list)
    """(value, time in ms until which the frame may arrive) of each request without a response."""

    def acknowledged(self, value: str | None, sent_ms: int) -> None:
        self.value = value
        self.pending = [each for each in self.pending if each[1] >= sent_ms]

    @property
    def possible(self) -> set[str | None]:
        return {self.value, *(value for value, _ in self.pending)}


class DynamicSettings(Reach):
    """The `Reach` (optional part of the workload) that changes dynamic settings, for the run of one seed."""

    clients = ("tuner", "tuned-probe")

    def __init__(self, random: Random, nodes: int) -> None:
        super().__init__(random, nodes)
        self._choices: dict[Name, tuple[str | None, ...]] = {}
        self._histories: dict[Name, History] = {}
        self._static: Mapping[str, Any] = {}
        """The brokers' settings at the start."""

    def arguments(self, topic_settings: str) -> list[str]:
        return ["--topic", f"{TUNED[0]}:1"]

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        self._choices = choices(self.nodes, stage.cluster.nodes)
        topics = stage.cluster.metadata.topics
        for name in self._choices:
            known = topics[name.resource].configs.get(name.setting) if name.kind == TOPIC else None
            self._histories[name] = History(known)
        self._static = dict(stage.cluster.running_nodes()[0].config.values)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._tune(self.stage.wire("tuner"))
        yield self._probe(self.stage.wire("tuned-probe"))

    # ---- changes of settings

    async def _tune(self, wire: Wire) -> None:
        random, names = wire.random, list(self._choices)
        while not self.stage.stop.now:
            await asyncio.sleep(random.uniform(*PAUSE_S))
            try:
                if random.random() < MISTAKES:
                    await self._mistake(wire, random.choice(MISTAKES_TO_MAKE))
                    continue
                name = random.choice(names)
                value = random.choice(self._choices[name])
                if random.random() < ONLY_VALIDATED:
                    await self._alter(wire, name, value, only_validate=True)
                else:
                    await self._change(wire, name, value)
            except Gone:
                await wire.back_off()
        for name in names:
            while not await self._describe_everywhere(wire, name):
                await wire.back_off()
        wire.close()

    async def _change(self, wire: Wire, name: Name, value: str | None) -> None:
        history, sent_ms = self._histories[name], wire.now_ms()
        pending = value, sent_ms + LATE_MARGIN_MS
        history.pending.append(pending)
        error = await self._alter(wire, name, value, only_validate=False)
        if error is NONE:
            history.acknowledged(value, sent_ms)
            history.pending = [each for each in history.pending if each is not pending]
            self.stage.reached(SETTING_CHANGED)
            self._check_everywhere(name)
        elif error not in MAY_FAIL:
            raise Broken(f"a change of {name} to {value} fails with {error.name}")

    async def _mistake(self, wire: Wire, mistake: Mistake) -> None:
        error = await self._alter(wire, mistake.name, mistake.value, only_validate=False)
        if error is NONE:
            raise Broken(f"an invalid change was accepted: {mistake.name} to {mistake.value}")
        self.stage.reached(SETTING_REFUSED)

    async def _alter(self, wire: Wire, name: Name, value: str | None, *, only_validate: bool) -> ErrorCode:
        operation = DELETE if value is None else SET
        config = AlterableConfig(name=name.setting, config_operation=operation, value=value)
        resource = AlterConfigsResource(
            resource_type=name.kind, resource_name=name.resource, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_validate)
        if name.kind == BROKER and name.resource:
            await wire.leader(*TUNED)  # updates the addresses of all nodes
            answer = await wire.ask_node(int(name.resource), INCREMENTAL_ALTER_CONFIGS, 1, request)
        else:
            answer = await wire.ask_any(INCREMENTAL_ALTER_CONFIGS, 1, request)
        error = ErrorCode(answer.responses[0].error_code)
        wire.say(f"sets {name} to {value}: {error.name}{', only validated' if only_validate else ''}")
        return error

    # ---- effects of settings

    async def _probe(self, wire: Wire) -> None:
        """Send batches of several sizes and check how they are handled."""
        while not self.stage.stop.now:
            await asyncio.sleep(wire.random.uniform(*PROBE_PAUSE_S))
            try:
                await self._send(wire, wire.random.choice(SIZES))
            except Gone:
                await wire.back_off()
        wire.close()

    async def _send(self, wire: Wire, size: int) -> None:
        before = {setting: self._of_tuned(setting) for setting in PROBED}
        records = build_batch([(wire.now_ms(), None, b"." * size)])
        partition = PartitionProduceData(index=TUNED[1], records=records)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=3_000,
            topic_data=[TopicProduceData(name=TUNED[0], partition_data=[partition])],
        )
        node_id, _ = await wire.leader(*TUNED)
        answer = await wire.ask_leader(*TUNED, PRODUCE, 12, request)
        result = answer.responses[0].partition_responses[0]
        error = ErrorCode(result.error_code)
        possible = {setting: before[setting] | self._of_tuned(setting) for setting in PROBED}
        limits = {int(each) for each in possible["max.message.bytes"]}
        if error is ErrorCode.message_too_large:
            self.stage.reached(REFUSED_BY_SETTING)
            if len(records) <= min(limits):
                raise Broken(f"a batch of {len(records)} bytes is refused; max.message.bytes is {limits}")
        elif error is NONE:
            if len(records) > max(limits):
                raise Broken(f"a batch of {len(records)} bytes is written; max.message.bytes is {limits}")
            self._check_written(node_id, result.base_offset, possible)
        elif error in ASK_LEADER_AGAIN:
            wire.forget_leader(*TUNED)

    def _of_tuned(self, setting: str) -> set[str]:
        """Possible values of a setting of the topic ``TUNED``, whether they come from the topic or a broker."""
        own = self._histories[Name(TOPIC, TUNED[0], setting)].possible
        found = {value for value in own if value is not None}
        if None in own:
            broker_name = PROBED[setting]
            cluster = self._histories.get(Name(BROKER, "", broker_name), History()).possible
            found |= {str(self._static[broker_name]) if value is None else value for value in cluster}
        return found

    def _check_written(self, node_id: int, offset: int, possible: dict[str, set[str]]) -> None:
        node = self.stage.cluster.running(node_id)
        leader = node.replicas.get(*TUNED) if node is not None else None
        if leader is None or leader.offline is not None or leader.leading is None:
            return
        codec = next(iter(leader.log.batches(offset))).attributes & 7
        allowed = {CODECS[each] for each in possible["compression.type"]}
        if codec not in allowed:
            raise Broken(f"{TUNED} has codec {codec} at offset {offset}; the settings are {possible}")
        if allowed == {CODECS["gzip"]}:
            self.stage.reached(COMPRESSION_BY_SETTING)
        if possible["flush.messages"] == {"1"}:
            self.stage.reached(FLUSHED_BY_SETTING)
            if leader.log.flushed_offset <= offset:
                raise Broken(
                    f"{TUNED}: offset {offset} is acknowledged; flushed are offsets < {leader.log.flushed_offset}"
                )

    # ---- checks on every node

    def look(self) -> None:
        for name in self._choices:
            self._check_everywhere(name)

    def check(self) -> None:
        self.look()
        self.stage.say(f"settings: {[self._histories[name].value for name in self._choices]}")

    def _check_everywhere(self, name: Name) -> None:
        history = self._histories[name]
        for node in self.stage.cluster.running_nodes():
            if name.kind == TOPIC:
                known = node.metadata.topics[name.resource].configs.get(name.setting)
                if known not in history.possible:
                    raise Broken(f"{name} is {known} on node {node.node_id}, not {history}")
                self._check_log(node, name)
            elif name.resource in ("", str(node.node_id)):
                self._check_broker(node, name.setting)

    @staticmethod
    def _check_log(node: Node, name: Name) -> None:
        """Check that an open replica uses the settings of its topic, over those of its broker."""
        replica = node.replicas.get(name.resource, 0)
        topic = node.metadata.topics[name.resource]
        expected = LogConfig.from_properties(topic.configs, node.config.log_defaults)
        if replica is not None and replica.offline is None and replica.log.config != expected:
            raise Broken(
                f"{name.resource} on node {node.node_id} uses {replica.log.config} instead of {expected}"
            )

    def _check_broker(self, node: Node, setting: str) -> None:
        own = self._histories.get(Name(BROKER, str(node.node_id), setting), History()).possible
        cluster = self._histories.get(Name(BROKER, "", setting), History()).possible
        texts = {value for value in own if value is not None}
        if None in own:
            texts |= {value for value in cluster if value is not None}
        key = kafka_configs()[setting]
        allowed = [key.parse(text) for text in texts]
        if None in own and None in cluster:
            allowed.append(self._static[setting])
        if node.config.values[setting] not in allowed:
            raise Broken(f"{setting} is {node.config.values[setting]} on node {node.node_id}, not {allowed}")

    async def _describe_everywhere(self, wire: Wire, name: Name) -> bool:
        """Check the DescribeConfigs response of each node. Returns False if not all nodes responded."""
        wanted = DescribeConfigsResource(
            resource_type=name.kind, resource_name=name.resource, configuration_keys=[name.setting]
        )
        request = DescribeConfigsRequest(resources=[wanted])
        told: dict[int, str | None] = {}
        try:
            await wire.leader(*TUNED)
            asked = (
                [int(name.resource)] if name.kind == BROKER and name.resource else self.stage.cluster.nodes
            )
            for node_id in asked:
                answer = await wire.ask_node(node_id, DESCRIBE_CONFIGS, 4, request)
                configs = answer.results[
                    0
                ].configs  # for all brokers (the default resource) only explicit values
                told[node_id] = configs[0].value if configs else None
        except Gone:
            wire.forget_leader(*TUNED)
            return False
        if len(set(told.values())) > 1:
            raise Broken(f"nodes describe different values of {name}: {told}")
        (value,) = set(told.values())
        history = self._histories[name]
        if None not in history.possible and value not in history.possible:
            raise Broken(f"nodes describe {name} as {value}, not {history}")
        return True


PROBED: Final = {
    "max.message.bytes": "message.max.bytes",
    "compression.type": "compression.type",
    "flush.messages": "log.flush.interval.messages",
}
"""Topic setting -> the broker setting that supplies its default."""
MAY_FAIL: Final = frozenset({ErrorCode.request_timed_out, ErrorCode.unknown_server_error})
