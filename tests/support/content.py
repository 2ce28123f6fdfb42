"""Topics, groups and transactions of all kinds, for tests in which another program opens a data directory.

    filled = fill(host, port)            # topics of all kinds, groups, transactions, one of them still open
    seen = observe(host, port)           # everything that a client can read from the broker
    ...                                  # another program opens the directory
    assert observe(host, port) == seen

The requests are raw, apart from what librdkafka writes, so Kafka and our broker receive the same requests.
"""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import Consumer

from tests.differential import batches
from tests.support import raw
from tests.support.clients import PATIENCE, ConfluentProducer, eventually
from tests.support.deadlines import Deadline

Body = dict[str, Any]
NOT_YET = frozenset({3, 5, 6, 14, 15, 16, 51})
"""Error codes of a response after which the request is sent again: unknown_topic_or_partition, leader_not_available,
not_leader_or_follower, coordinator_load_in_progress, coordinator_not_available, not_coordinator,
concurrent_transactions."""
TOPIC_RESOURCE, DYNAMIC_TOPIC_CONFIG = 2, 1
INTERNAL = ("__consumer_offsets", "__transaction_state")
OPEN_ID = "open"
_ENDING = ["PrepareCommit", "PrepareAbort"]
SEGMENT_BYTES = 1 << 20


class Asked:
    """One connection to a broker. Requests whose response has a retriable error are sent again."""

    def __init__(self, host: str, port: int) -> None:
        self._wire = raw.Wire(host, port)
        self._correlation = 0

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def once(self, api: str, version: int, **body: Any) -> Body:
        self._correlation += 1
        self._wire.send_frame(raw.encode_request(api, version, body, self._correlation))
        return raw.decode_response(api, version, self._wire.receive_frame())[1]

    def any(self, api: str, version: int, **body: Any) -> Body:
        """Send a request until there is no retriable error, and return the response with any other errors."""
        deadline = Deadline()
        while True:
            answer = self.once(api, version, **body)
            if not NOT_YET & set(raw.error_codes(answer)):
                return answer
            deadline.check(f"{api}: {answer}")
            time.sleep(0.02)

    def __call__(self, api: str, version: int, **body: Any) -> Body:
        answer = self.any(api, version, **body)
        assert not any(raw.error_codes(answer)), f"{api} {body}: {answer}"
        return answer

    def has(self, api: str) -> bool:
        return any(row["api_key"] == raw.API_KEYS[api] for row in self("api_versions", 0)["api_keys"])

    # ---- common requests

    def create(self, name: str, partitions: int = 1, **configs: Any) -> None:
        """Create a topic. In the names of settings a double underscore replaces a dot."""
        rows = [{"name": key.replace("__", "."), "value": str(value)} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
        self("create_topics", 7, topics=[topic], timeout=10_000)
        self("metadata", 12, topics=[{"topic_id": None, "name": name}], allow_auto_topic_creation=False)

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, version: int = 9, transactional_id: str = ""
    ) -> int:
        """Produce one batch and return its base offset."""
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        answer = self(
            "produce",
            version,
            transactional_id=transactional_id or None,
            acks=-1,
            timeout=10_000,
            topic_data=data,
        )
        return int(answer["responses"][0]["partition_responses"][0]["base_offset"])

    def producer_id(self, transactional_id: str | None = None) -> tuple[int, int]:
        if transactional_id is not None:
            self("find_coordinator", 3, key=transactional_id, key_type=1)
        answer = self(
            "init_producer_id",
            4,
            transactional_id=transactional_id,
            transaction_timeout=900_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        return answer["producer_id"], answer["producer_epoch"]

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self.offset(topic, partition, -1)

    def offset(self, topic: str, partition: int, timestamp: int, isolation_level: int = 0) -> int:
        rows = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
                ],
            }
        ]
        answer = self("list_offsets", 7, replica_id=-1, isolation_level=isolation_level, topics=rows)
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def committed(self, group: str, topic: str, partition: int = 0, *, stable: bool = False) -> int:
        rows = [{"name": topic, "partition_indexes": [partition]}]
        answer = self("offset_fetch", 8, groups=[{"group_id": group, "topics": rows}], require_stable=stable)
        return int(answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        self("find_coordinator", 3, key=group, key_type=0)
        rows = [{"name": topic, "partitions": [_committed(offset)]}]
        self(
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=rows,
        )

    def end_transaction(self, open_: OpenTransaction, *, committed: bool) -> Body:
        """End the transaction ``open_`` of a producer that is not running, with its producer id and epoch."""
        return self(
            "end_txn",
            5 if open_.transaction_version == 2 else 3,
            transactional_id=open_.transactional_id,
            producer_id=open_.producer_id,
            producer_epoch=open_.producer_epoch,
            committed=committed,
        )

    def fetch(self, topic: str, partition: int, offset: int, isolation_level: int) -> Body:
        part = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 8 << 20,
        }
        answer = self(
            "fetch",
            12,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=50 << 20,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [part]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        return dict(answer["responses"][0]["partitions"][0])


def _committed(offset: int) -> Body:
    return {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "here",
    }


# ---- filling


@dataclass
class OpenTransaction:
    """An open transaction: data in ``flow-0`` and ``orders-0``, an offset of the group ``movers``."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    next_sequence: int


@dataclass
class Filled:
    open: OpenTransaction
    last_batch: str
    """The last batch of an idempotent producer to ``idempotent-0``, in base64; ``last_batch_offset`` is its base offset."""
    last_batch_offset: int
    gone: str
    """Name of a topic that `fill` has created and deleted."""
    now_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Filled:
        values = json.loads(text)
        return cls(**values | {"open": OpenTransaction(**values["open"])})


def fill(host: str, port: int, *, transaction_version: int = 2) -> Filled:
    """Write content of all kinds. The transaction that stays open is begun last."""
    bootstrap = f"{host}:{port}"
    now_ms = int(time.time() * 1000)
    with Asked(host, port) as ask:
        ask.create("plain", 2, retention__ms=-1)
        ask.create("orders", 2, cleanup__policy="delete", max__message__bytes=2_000_000)
        ask.create("name.with-dashes-1", 1)
        ask.create("never-written", 3)
        ask.create("idempotent")
        for partition in range(2):
            headers = [(b"trace", b"1"), (b"none", None)]
            ask.produce(
                "plain",
                batches.batch([b"a", None, b"\xff\x00"], ts=now_ms, headers=headers),
                partition=partition,
            )
        ask.produce("name.with-dashes-1", batches.batch(2, ts=now_ms))
        _fill_segments(ask, now_ms)
        _fill_trimmed(ask, now_ms)
        last_batch, last_offset = _fill_idempotent(ask, now_ms)
        _change_settings(ask)
        ask.create("gone-topic")
        ask.produce("gone-topic", batches.batch(1, ts=now_ms))
        ask("delete_topics", 4, topic_names=["gone-topic"], timeout=10_000)
        _fill_codecs(ask, bootstrap)
        _fill_transactions(ask, bootstrap)
        _fill_groups(ask, bootstrap)
        open_ = _leave_open(ask, now_ms, transaction_version)
    return Filled(open_, base64.b64encode(last_batch).decode(), last_offset, "gone-topic", now_ms)


def _fill_segments(ask: Asked, now_ms: int) -> None:
    """Write three segments with aborted transactions in each, so that each has a transaction index."""
    ask.create("segments", 1, segment__bytes=SEGMENT_BYTES, index__interval__bytes=8192)
    producer_id, epoch = ask.producer_id("segments")
    for number in range(60):
        ask.produce("segments", batches.batch([bytes(40_000)], ts=now_ms + number))
        if number % 6 == 5:
            ask(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id="segments",
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[{"name": "segments", "partitions": [0]}],
            )
            one = batches.batch(
                [b"never"], ts=now_ms, pid=producer_id, epoch=epoch, seq=number // 6, txn=True
            )
            ask.produce("segments", one, transactional_id="segments")
            ask(
                "end_txn",
                3,
                transactional_id="segments",
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=False,
            )


def _fill_trimmed(ask: Asked, now_ms: int) -> None:
    ask.create("trimmed", 1)
    for number in range(10):
        ask.produce("trimmed", batches.batch([b"%d" % number], ts=now_ms))
    rows = [{"name": "trimmed", "partitions": [{"partition_index": 0, "offset": 4}]}]
    ask("delete_records", 2, topics=rows, timeout=10_000)


def _fill_idempotent(ask: Asked, now_ms: int) -> tuple[bytes, int]:
    producer_id, epoch = ask.producer_id()
    for number in range(4):
        last = batches.batch(3, ts=now_ms, pid=producer_id, epoch=epoch, seq=3 * number)
        offset = ask.produce("idempotent", last)
    return last, offset


def _change_settings(ask: Asked) -> None:
    """Change client quotas and topic settings, each only if the broker has the API for the change."""
    if ask.has("alter_client_quotas"):
        entity = [{"entity_type": "client-id", "entity_name": "greedy"}]
        ops = [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]
        ask("alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
    changes = [("retention.ms", 0, "123456789"), ("max.message.bytes", 1, None)]
    rows = [{"name": name, "config_operation": what, "value": value} for name, what, value in changes]
    with_them = {"resource_type": TOPIC_RESOURCE, "resource_name": "orders", "configs": rows}
    if ask.has("incremental_alter_configs"):
        ask("incremental_alter_configs", 1, resources=[with_them], validate_only=False)


def _fill_codecs(ask: Asked, bootstrap: str) -> None:
    ask.create("codecs")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = ConfluentProducer(bootstrap, compression=codec, linger_ms=20)
        producer.send("codecs", [f"{codec} {number} " + "x" * 50 for number in range(20)])
        producer.close()
    for number in (1, 2, 3, 4):
        ask.produce("codecs", batches.batch([b"y" * 100, b"z"], ts=1_700_000_000_000, codec=number))


def _fill_transactions(ask: Asked, bootstrap: str) -> None:
    ask.create("flow", 2)
    producer = ConfluentProducer(bootstrap, transactional_id="mover")
    producer.init()
    for number in range(6):
        producer.begin()
        producer.send("flow", [f"{number}.{each}" for each in range(3)], partition=number % 2)
        producer.send("orders", [f"{number}"], keys=["k"])
        if number == 2:
            producer.send_offsets("movers", {("plain", 0): 2})
        (producer.abort if number % 3 == 1 else producer.commit)()
    producer.close()


def _fill_groups(ask: Asked, bootstrap: str) -> None:
    ask.commit_offset("simple", "plain", 1)
    config = {
        **PATIENCE,
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    member = Consumer(config)
    member.subscribe(["codecs"])
    seen = 0
    deadline = Deadline()
    while seen < 50:
        deadline.check("the assignment is as wanted")
        seen += sum(1 for message in member.consume(50 - seen, 0.1) if message.error() is None)
    member.commit(asynchronous=False)
    member.close()


def _leave_open(ask: Asked, now_ms: int, transaction_version: int) -> OpenTransaction:
    producer_id, epoch = ask.producer_id(OPEN_ID)
    open_ = OpenTransaction(OPEN_ID, producer_id, epoch, transaction_version, 1)
    whose: Body = {"transactional_id": OPEN_ID, "producer_id": producer_id, "producer_epoch": epoch}
    if transaction_version < 2:
        ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=OPEN_ID,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                {"name": "flow", "partitions": [0]},
                {"name": "orders", "partitions": [0]},
            ],
        )
        ask("add_offsets_to_txn", 3, **whose, group_id="movers")
    one = batches.batch([b"undecided"], ts=now_ms, pid=producer_id, epoch=epoch, seq=0, txn=True)
    version = 12 if transaction_version == 2 else 9
    for topic in ("flow", "orders"):
        ask.produce(topic, one, version=version, transactional_id=OPEN_ID)
    # This record is not below the last stable offset before the transaction ends.
    ask.produce("flow", batches.batch([b"behind"], ts=now_ms))
    ask(
        "txn_offset_commit",
        5 if transaction_version == 2 else 3,
        **whose,
        group_id="movers",
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "plain", "partitions": [_committed(3)]}],
    )
    return open_


def fill_compacted(host: str, port: int) -> None:
    """Create a topic with records to compact in every segment."""
    rng = random.Random(4)
    with Asked(host, port) as ask:
        ask.create(
            "compacted",
            1,
            cleanup__policy="compact",
            min__cleanable__dirty__ratio="0.01",
            segment__ms=100,
            delete__retention__ms=0,
        )
        now_ms = int(time.time() * 1000)
        for number in range(8):
            keys = [b"k%d" % rng.randrange(4) for _ in range(5)]
            values = [b"%d.%d" % (number, each) if number < 7 else None for each in range(5)]
            # Segments roll by record timestamps (segment.ms): each batch begins a new segment.
            ask.produce("compacted", batches.batch(values, ts=now_ms + 200 * number, keys=keys))
        ask.produce("compacted", batches.batch([b"last"], ts=now_ms + 2000, keys=[b"last"]))


def await_cleaning(host: str, port: int) -> None:
    """Wait until the compacted topic is compacted. The cleaner must run often (``log.cleaner.backoff.ms``)."""
    with Asked(host, port) as ask:
        eventually(lambda: _record_count(ask, "compacted") < 20, "the log is compacted")


def _record_count(ask: Asked, topic: str) -> int:
    return sum(batch["count"] for batch in _batches(ask, topic, 0, 0)["batches"])


# ---- observing


def observe(host: str, port: int, groups: Iterable[str] = ("simple", "readers", "movers")) -> Body:
    """Everything that a client can read, as JSON.

    The current leader epochs, which each start of a broker increments, are left out. Those in the batches are
    included.
    """
    with Asked(host, port) as ask:
        for kind, key in ((0, "readers"), (1, OPEN_ID)):
            ask("find_coordinator", 3, key=key, key_type=kind)
        metadata = ask("metadata", 12, topics=None, allow_auto_topic_creation=False)
        versions = ask("api_versions", 3, client_software_name="tests", client_software_version="1")
        topics = {topic["name"]: topic for topic in metadata["topics"]}
        partitions = [(name, index) for name in topics for index in range(len(topics[name]["partitions"]))]
        seen = {
            "cluster_id": metadata["cluster_id"],
            "nodes": [node["node_id"] for node in metadata["brokers"]],
            "features": {row["name"]: row["max_version_level"] for row in versions["finalized_features"]},
            "topics": {
                name: {"id": str(topic["topic_id"]), "partitions": len(topic["partitions"])}
                for name, topic in sorted(topics.items())
            },
            "configs": _configs(ask, sorted(topics)),
            "quotas": _quotas(ask),
            "groups": {group: _group(ask, group) for group in groups},
            "transactions": _transactions(ask),
            "partitions": {
                f"{name}-{index}": _partition(ask, name, index)
                for name, index in sorted(partitions)
                if name not in INTERNAL
            },
        }
    return dict(json.loads(json.dumps(seen)))


def leader_epochs(host: str, port: int) -> dict[str, int]:
    with Asked(host, port) as ask:
        metadata = ask("metadata", 12, topics=None, allow_auto_topic_creation=False)
    return {
        f"{topic['name']}-{row['partition_index']}": row["leader_epoch"]
        for topic in metadata["topics"]
        for row in topic["partitions"]
    }


def _configs(ask: Asked, topics: Sequence[str]) -> Mapping[str, Any]:
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
        for name in topics
    ]
    answer = ask(
        "describe_configs", 4, resources=resources, include_synonyms=False, include_documentation=False
    )
    return {
        row["resource_name"]: {
            each["name"]: each["value"]
            for each in sorted(row["configs"], key=lambda each: each["name"])
            if each["config_source"] == DYNAMIC_TOPIC_CONFIG
        }
        for row in answer["results"]
    }


def _quotas(ask: Asked) -> Any:
    if not ask.has("describe_client_quotas"):
        return None
    return ask("describe_client_quotas", 1, components=[], strict=False)["entries"]


def _group(ask: Asked, group: str) -> Body:
    described = ask("describe_groups", 5, groups=[group], include_authorized_operations=False)["groups"][0]
    fetched = ask("offset_fetch", 8, groups=[{"group_id": group, "topics": None}], require_stable=False)
    offsets = {
        f"{topic['name']}-{row['partition_index']}": [
            row["committed_offset"],
            row["committed_leader_epoch"],
            row["metadata"],
        ]
        for topic in fetched["groups"][0]["topics"]
        for row in topic["partitions"]
    }
    return {
        "state": described["group_state"],
        "type": described["protocol_type"],
        "offsets": dict(sorted(offsets.items())),
    }


def _transactions(ask: Asked) -> Body:
    """Descriptions by transactional id. Waits until prepared transactions are completed."""
    eventually(
        lambda: (
            not ask("list_transactions", 0, state_filters=_ENDING, producer_id_filters=[])[
                "transaction_states"
            ]
        ),
        "prepared transactions are completed",
    )
    listed = ask("list_transactions", 0, state_filters=[], producer_id_filters=[])["transaction_states"]
    ids = sorted(row["transactional_id"] for row in listed)
    described = ask("describe_transactions", 0, transactional_ids=ids)["transaction_states"]
    return {
        row["transactional_id"]: {
            "state": row["transaction_state"],
            "producer": [row["producer_id"], row["producer_epoch"]],
            "timeout_ms": row["transaction_timeout"],
            "partitions": sorted(
                f"{topic['topic']}-{index}" for topic in row["topics"] for index in topic["partitions"]
            ),
        }
        for row in described
    }


def _partition(ask: Asked, name: str, index: int) -> Body:
    return {
        "start": ask.offset(name, index, -2),
        "end": ask.offset(name, index, -1),
        "stable": ask.offset(name, index, -1, isolation_level=1),
        "uncommitted": _batches(ask, name, index, 0),
        "committed": _batches(ask, name, index, 1),
    }


def _batches(ask: Asked, name: str, index: int, isolation_level: int) -> Body:
    """All batches that a consumer reads from offset 0, and the aborted transactions in the Fetch responses."""
    offset = ask.offset(name, index, -2)
    end = ask.offset(name, index, -1, isolation_level)
    found: list[Body] = []
    aborted: set[tuple[int, int]] = set()
    while offset < end:
        row = ask.fetch(name, index, offset, isolation_level)
        assert row["records"], (name, index, offset, end)
        aborted |= {(each["producer_id"], each["first_offset"]) for each in row["aborted_transactions"] or ()}
        whole = [batch for batch in batches.read_batches(row["records"]) if "partial" not in batch]
        found += [_brief(batch) for batch in whole]
        offset = whole[-1]["base_offset"] + whole[-1]["last_delta"] + 1
    return {"batches": found, "aborted": sorted(aborted)}


def batches_of(ask: Asked, name: str, index: int) -> list[Body]:
    """All batches that a read_uncommitted consumer reads."""
    return list(_batches(ask, name, index, 0)["batches"])


def _brief(batch: Mapping[str, Any]) -> Body:
    """A batch as JSON: a batch of 40,000 zeros is shortened, all others are complete."""
    assert batch["crc"] == "right", batch
    return {name: value for name, value in batch.items() if name not in ("magic", "size", "crc")}


def undecided(host: str, port: int) -> list[str]:
    """Partitions (``topic-partition``) whose last stable offset is below the high watermark because of an open
    transaction."""
    seen = observe(host, port, groups=())
    return [name for name, row in seen["partitions"].items() if row["stable"] < row["end"]]


def continue_batch(open_: OpenTransaction, now_ms: int) -> bytes:
    """The next batch of the open transaction's producer."""
    return batches.batch(
        [b"more"],
        ts=now_ms,
        pid=open_.producer_id,
        epoch=open_.producer_epoch,
        seq=open_.next_sequence,
        txn=True,
    )
