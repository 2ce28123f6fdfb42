"""Base class of stories.

A story is a function with a `Story` as parameter. It sends requests to a broker over named raw connections, and stores
values of the responses (producer ids, member ids, sessions) in plain variables. Each exchange is normalised and added to
the transcript, which is compared.

    @story("produce")
    def crc_wrong(s):
        t = s.topic()
        s.produce(t, s.batch(1, crc=0))

Preparations (`s.topic`, anything with quiet=True) are not in the transcript. Names contain the story's own name, so that
stories do not interfere on one broker; the transcript has ~ instead.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.differential import batches
from tests.differential.normal import MINUTE, Normal
from tests.support import raw
from tests.support.deadlines import HANG_S, Deadline

Body = dict[str, Any]
WAIT = HANG_S
LONG_POLL_MS = round(HANG_S * 2_000)
"""Milliseconds for a long poll, longer than the timeout of a receive: only new data can complete it in time."""


@dataclass(frozen=True)
class Entry:
    area: str
    name: str
    run: Callable[[Story], None]
    profile: str

    @property
    def id(self) -> str:
        return f"{self.area}.{self.name}"


class Named(Protocol):
    """An entry of a list of stories (functions that send requests): its area, name and id."""

    @property
    def area(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...


STORIES: dict[str, Entry] = {}


def story(area: str, profile: str = "main") -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    """Decorator: register a story, which runs on a broker with the settings of `profile` (see runner.PROFILES)."""

    def register(run: Callable[[Story], None]) -> Callable[[Story], None]:
        entry = Entry(area, run.__name__, run, profile)
        assert entry.id not in STORIES, entry.id
        STORIES[entry.id] = entry
        return run

    return register


class Unanswered(Exception):
    """Raised when a request gets no response although the story needs one. The exception ends the story."""


@dataclass(frozen=True)
class Topic:
    name: str
    id: uuid.UUID

    def by(self, versioned: int, ids_from: int, field: str = "name") -> Body:
        return {"topic_id": self.id} if versioned >= ids_from else {field: self.name}


@dataclass
class Pending:
    api: str
    version: int
    on: str
    correlation: int
    label: str


@dataclass
class Story:
    entry: Named
    host: str
    port: int
    attempt: int = 0
    hold_markers: Callable[[], AbstractContextManager[object]] = nullcontext
    """Context manager in which no marker is written for the transaction coordinator. The implementation depends on the
    broker."""
    restart_broker: Callable[[], object] | None = None
    """Stops the broker cleanly and starts it again; only for stories with a broker of their own."""
    transcript: list[Body] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prefix = f"{self.entry.area}-{self.entry.name}".replace("_", "-")[:80]
        if self.attempt:
            # The prefix keeps its length, because the compared byte counts include names.
            mark = f"X{self.attempt}"
            self.prefix = self.prefix[: -len(mark)] + mark
        self.t0 = int(time.time() * 1000) - 10 * MINUTE
        self.normal = self._normal()
        self.wires: dict[str, raw.Wire] = {}
        self.correlation = 0
        self.topics = 0

    def _normal(self) -> Normal:
        return Normal(self.prefix, {self.port: "port"}, self.t0)

    # -- connections ---------------------------------------------------------------------------------------------

    def wire(self, on: str = "main") -> raw.Wire:
        if on not in self.wires:
            self.wires[on] = raw.Wire(self.host, self.port)
        return self.wires[on]

    def close(self, on: str | None = None) -> None:
        for name in [on] if on else list(self.wires):
            wire = self.wires.pop(name, None)
            if wire:
                wire.close()

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on its directory and port."""
        assert self.restart_broker is not None, f"{self.entry.id} shares its broker"
        self.close()
        self.restart_broker()

    # -- exchanges -----------------------------------------------------------------------------------------------

    def put(self, label: str, answer: Any) -> None:
        self.transcript.append({"ask": label, "answer": answer})

    def send(
        self, api: str, version: int, /, *, on: str = "main", client_id: str | None = "raw", **body: Any
    ) -> Pending:
        note = body.pop("note", "")
        self.correlation += 1
        self.wire(on).send_frame(raw.encode_request(api, version, body, self.correlation, client_id))
        return Pending(api, version, on, self.correlation, self._label(api, version, on, note))

    def _label(self, api: str, version: int, on: str, note: str) -> str:
        return f"{api} v{version}" + (f" ({note})" if note else "")

    def receive(self, pending: Pending, wait: float = WAIT) -> Body:
        wire = self.wire(pending.on)
        correlation, body = raw.decode_response(pending.api, pending.version, wire.receive_frame(wait))
        if correlation != pending.correlation:
            raise raw.Malformed(f"the response has correlation id {correlation}, not {pending.correlation}")
        return body

    def take(self, pending: Pending, wait: float = WAIT) -> Body:
        """Receive the response to the pending request and record it."""
        try:
            body = self.receive(pending, wait)
        except (raw.Closed, raw.Silence, raw.Malformed) as error:
            self.put(pending.label, self._nothing(error, pending.on))
            raise Unanswered(pending.label) from error
        self.put(pending.label, self.normal.answer(pending.api, body))
        return body

    def _nothing(self, error: Exception, on: str) -> str:
        if isinstance(error, raw.Closed):
            self.close(on)
            return "closed"
        return "silence" if isinstance(error, raw.Silence) else f"malformed: {error}"

    def ask(
        self,
        api: str,
        version: int,
        /,
        *,
        retry: Iterable[int] = (),
        quiet: bool = False,
        wait: float = WAIT,
        **body: Any,
    ) -> Body:
        """Send a request and return the response. Repeat while its error is in `retry`; record the last response."""
        codes, deadline = set(retry), Deadline()
        while True:
            try:
                pending = self.send(api, version, **body)
                answer = self.receive(pending, wait)
            except (raw.Closed, raw.Silence, raw.Malformed) as error:
                on = body.get("on", "main")
                outcome = self._nothing(error, on)
                if not quiet:
                    self.put(self._label(api, version, on, body.get("note", "")), outcome)
                raise Unanswered(f"{api} v{version}: {outcome}") from error
            if not codes & set(raw.error_codes(answer)) or deadline.is_over:
                break
            time.sleep(0.02)
        if not quiet:
            self.put(pending.label, self.normal.answer(api, answer))
        return answer

    def quiet(
        self, api: str, version: int, /, retry: Iterable[int] = (3, 5, 14, 15, 16, 51), **body: Any
    ) -> Body:
        return self.ask(api, version, retry=retry, quiet=True, **body)

    def try_ask(self, api: str, version: int, /, **body: Any) -> Body | None:
        """Send a request and record the outcome. Returns the response, or None without one: the story then
        continues."""
        try:
            return self.ask(api, version, **body)
        except Unanswered:
            return None

    def raw(
        self, label: str, data: bytes, *, on: str = "main", wait: float = 3.0, frame: bool = True
    ) -> bytes | None:
        """Send bytes; record the result: closed, silence, or the response frame in hex after its correlation id."""
        wire = self.wire(on)
        try:
            wire.send_frame(data) if frame else wire.send_bytes(data)
            answer = wire.receive_frame(wait)
        except (raw.Closed, raw.Silence) as error:
            self.put(label, self._nothing(error, on))
            return None
        self.put(label, {"frame": answer.hex() if len(answer) < 64 else "long"})
        return answer

    def raw_request(
        self, label: str, api: str, version: int, frame: bytes, *, on: str = "main", wait: float = 3.0
    ) -> Body | None:
        """Send a custom frame, and decode the response as that of `api` and `version`."""
        wire = self.wire(on)
        try:
            wire.send_frame(frame)
            body = raw.decode_response(api, version, wire.receive_frame(wait))[1]
        except (raw.Closed, raw.Silence, raw.Malformed) as error:
            self.put(label, self._nothing(error, on))
            return None
        self.put(label, self.normal.answer(api, body))
        return body

    def alive(self, on: str = "main") -> None:
        """Check that the broker still responds on this connection."""
        pending = self.send("heartbeat", 0, on=on, group_id="", generation_id=0, member_id="")
        try:
            self.put(f"alive? ({on})", self.receive(pending)["error_code"])
        except (raw.Closed, raw.Silence) as error:
            self.put(f"alive? ({on})", self._nothing(error, on))

    # -- names and preparations ----------------------------------------------------------------------------------

    def name(self, suffix: str = "") -> str:
        return f"{self.prefix}-{suffix}" if suffix else self.prefix

    def topic(self, partitions: int = 1, **configs: str) -> Topic:
        """Create a topic. In the names of settings a double underscore means a dot."""
        self.topics += 1
        name = self.name(f"t{self.topics}")
        settings = [{"name": k.replace("__", "."), "value": v} for k, v in configs.items()]
        answer = self.quiet(
            "create_topics",
            7,
            retry=(),
            topics=[
                {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
            ],
        )
        row = answer["topics"][0]
        if row["error_code"]:
            raise Unanswered(f"{name} not created: {row['error_code']} {row['error_message']}")
        self.normal.symbol("topic", row["topic_id"])
        self.wait_for(name, partitions)
        return Topic(name, row["topic_id"])

    def wait_for(self, name: str, partitions: int = 1) -> None:
        """Wait until the partitions have a leader that responds."""
        self.quiet("metadata", 4, topics=[{"name": name}], allow_auto_topic_creation=False)
        rows = [{"partition_index": p, "timestamp": -1} for p in range(partitions)]
        self.quiet(
            "list_offsets", 1, retry=(3, 5, 6), replica_id=-1, topics=[{"name": name, "partitions": rows}]
        )

    def producer_id(
        self, transactional_id: str | None = None, timeout: int = 60000, version: int = 4
    ) -> tuple[int, int]:
        answer = self.quiet(
            "init_producer_id", version, transactional_id=transactional_id, transaction_timeout=timeout
        )
        if answer["error_code"]:
            raise Unanswered(f"no producer id: {answer['error_code']}")
        self.normal.symbol("pid", answer["producer_id"])
        return answer["producer_id"], answer["producer_epoch"]

    def settle(self, transactional_id: str) -> None:
        """Wait until the end of a transaction is complete, if the broker has DescribeTransactions."""
        deadline = Deadline()
        while self._can_describe() and not deadline.is_over:
            answer = self.quiet("describe_transactions", 0, on="settle", transactional_ids=[transactional_id])
            if not answer["transaction_states"][0]["transaction_state"].startswith("Prepare"):
                break
            time.sleep(0.01)
        time.sleep(0.05)

    def _can_describe(self) -> bool:
        answer = self.quiet("api_versions", 0, on="settle")
        return any(row["api_key"] == raw.API_KEYS["describe_transactions"] for row in answer["api_keys"])

    # -- common requests -----------------------------------------------------------------------------------------

    def batch(self, values: int | Sequence[bytes | None] = 1, **fields: Any) -> bytes:
        fields.setdefault("ts", self.t0)
        return batches.batch(values, **fields)

    def produce(
        self,
        topic: Topic | Sequence[tuple[Topic, int, bytes | None]],
        data: bytes | None = None,
        /,
        *,
        v: int = 9,
        partition: int = 0,
        acks: int = -1,
        tx: str | None = None,
        **more: Any,
    ) -> Body:
        rows = [(topic, partition, data)] if isinstance(topic, Topic) else topic
        more.setdefault("timeout", 10000)
        return self.ask("produce", v, **produce_body(rows, v, acks, tx), **more)

    def fetch(
        self, topic: Topic | Sequence[tuple[Topic, int, int]], offset: int = 0, /, *, v: int = 12, **more: Any
    ) -> Body:
        rows = [(topic, 0, offset)] if isinstance(topic, Topic) else topic
        partition = {
            k: more.pop(k)
            for k in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
            if k in more
        }
        return self.ask("fetch", v, **fetch_body(rows, v, **partition), **(FETCH | more))


def java_hash(name: str) -> int:
    """The hash that selects a coordinator's partition."""
    value = 0
    for char in name:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return abs(signed) if signed != -(1 << 31) else 0


FETCH = {
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 1,
    "max_bytes": 50 << 20,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
}


def produce_body(rows: Sequence[tuple[Topic, int, bytes | None]], v: int, acks: int, tx: str | None) -> Body:
    by_topic: dict[Topic, list[Body]] = {}
    for topic, index, data in rows:
        by_topic.setdefault(topic, []).append({"index": index, "records": data})
    topics = [topic.by(v, 13) | {"partition_data": parts} for topic, parts in by_topic.items()]
    return {"transactional_id": tx, "acks": acks, "topic_data": topics}


def fetch_body(rows: Sequence[tuple[Topic, int, int]], v: int, **partition: Any) -> Body:
    by_topic: dict[Topic, list[Body]] = {}
    for topic, index, offset in rows:
        part = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **partition}
        by_topic.setdefault(topic, []).append(part)
    return {"topics": [topic.by(v, 13, "topic") | {"partitions": parts} for topic, parts in by_topic.items()]}


def subscription(topics: Sequence[str] = (), version: int = 0, user_data: bytes | None = None) -> bytes:
    """A valid ConsumerProtocolSubscription."""
    out = struct.pack(">hi", version, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    out += struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return out + (struct.pack(">i", 0) if version >= 1 else b"")


def assignment(parts: dict[str, Sequence[int]]) -> bytes:
    out = struct.pack(">hi", 0, len(parts))
    for topic, partitions in parts.items():
        out += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(partitions))
        out += b"".join(struct.pack(">i", p) for p in partitions)
    return out + struct.pack(">i", -1)
