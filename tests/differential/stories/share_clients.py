"""Members of share groups (KIP-932), and the requests of members, operators and other brokers about them."""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from protocol.batch import batches
from protocol.hashing import partition_for
from protocol.records import share_group_log, share_state_log
from protocol.uuids import uuid_text
from tests.differential.stories.alter_configs import SET, change, resource, settled
from tests.differential.story import LONG_POLL_MS, Body, Pending, Story, Topic
from tests.support import raw
from tests.support.deadlines import Deadline

PROFILE = "share"
GROUP_RESOURCE = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SESSION_NOT_FOUND = 122
SILENCE_S = 0.2
"""Seconds without a response after which a request counts as waiting."""
NOT_LONG_MS = 150
"""``MaxWaitMs`` of a fetch that finds nothing."""

Where = Topic | tuple[Topic, int]
Batch = tuple[int, int, int | Sequence[int]]
"""Acknowledgement of a range: first offset, last offset, one type for all offsets or one for each of them."""
Acks = Mapping[Where, Sequence[Batch]]


NO_ACKS: Acks = MappingProxyType({})


class Member:
    """A member of a share group, or a client that never joins: its member epoch, and its share session.

    The session is on a connection of its own, whose name is the member id unless `on` is given.
    """

    def __init__(self, s: Story, member_id: str = "m", group: str = "g", on: str = "") -> None:
        self.s, self.id, self.group = s, member_id, s.name(group)
        self.on = on or member_id
        self.coordinator = "main"
        """The connection for heartbeats."""
        self.epoch = self.session = 0

    # -- the group -----------------------------------------------------------------------------------------------

    def body(self, **changes: Any) -> Body:
        plain: Body = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch}
        return plain | {"rack_id": None, "subscribed_topic_names": None} | changes

    def beat(self, note: str = "", **changes: Any) -> Body:
        return self._heard(
            self.s.ask("share_group_heartbeat", 1, on=self.coordinator, note=note, **self.body(**changes))
        )

    def join(self, note: str = "joins", *topics: Topic, **changes: Any) -> Body:
        return self.beat(note, **({"member_epoch": 0, "subscribed_topic_names": names(topics)} | changes))

    def _heard(self, answer: Body) -> Body:
        if answer["error_code"] == 0:
            self.epoch = answer["member_epoch"]
        return answer

    def until(self, wanted: Any, note: str, **changes: Any) -> Body:
        """Send heartbeats until ``wanted`` accepts a response, and record only that response."""
        deadline = Deadline()
        while True:
            answer = self._heard(
                self.s.quiet("share_group_heartbeat", 1, on=self.coordinator, **self.body(**changes))
            )
            if wanted(answer):
                break
            deadline.check(note)
            time.sleep(0.02)
        self.s.put(f"until {note}", self.s.normal.answer("share_group_heartbeat", answer))
        return answer

    def leave(self, note: str = "leaves", quiet: bool = False) -> Body:
        body = self.body(member_epoch=-1)
        return self.s.ask("share_group_heartbeat", 1, on=self.coordinator, note=note, quiet=quiet, **body)

    # -- the share session ---------------------------------------------------------------------------------------

    def fetch_body(
        self, *where: Where, acks: Acks = NO_ACKS, forgotten: Sequence[Where] = (), **changes: Any
    ) -> Body:
        plain: Body = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": self.session,
            "max_wait": LONG_POLL_MS,
            "min_bytes": 1,
            "max_bytes": 50 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": acknowledged({each: () for each in where} | dict(acks)),
            "forgotten_topics_data": partitions_of(forgotten),
        }
        return plain | changes

    def fetch(self, note: str, *where: Where, v: int = 2, **more: Any) -> Body:
        """Send ShareFetch, and expect a response at once. With ``quiet`` it is not in the transcript."""
        quiet = more.pop("quiet", False)
        body = self.fetch_body(*where, **more)
        return self._passed(self.s.ask("share_fetch", v, on=self.on, note=note, quiet=quiet, **body), body)

    def nothing(self, note: str, *where: Where, **more: Any) -> Body:
        """Send a ShareFetch that finds nothing until its MaxWaitMs."""
        return self.fetch(note, *where, **({"max_wait": NOT_LONG_MS} | more))

    def begin_fetch(self, note: str, *where: Where, v: int = 2, **more: Any) -> Pending:
        body = self.fetch_body(*where, **more)
        pending = self.s.send("share_fetch", v, on=self.on, note=note, **body)
        self.session = following(body["share_session_epoch"])
        return pending

    def until_acquired(self, note: str, *where: Where, **more: Any) -> Body:
        """Send ShareFetch until a response has acquired records, and record only that response."""
        deadline = Deadline()
        while True:
            answer = self.fetch(note, *where, quiet=True, **({"max_wait": 0} | more))
            if acquired(answer):
                break
            if answer["error_code"] == SESSION_NOT_FOUND:
                self.session = 0
            deadline.check(note)
            time.sleep(0.01)
        self.s.put(f"until {note}", self.s.normal.answer("share_fetch", answer))
        return answer

    def acknowledge_body(self, acks: Acks, **changes: Any) -> Body:
        plain: Body = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": self.session,
            "topics": acknowledged(acks),
        }
        return plain | changes

    def acknowledge(self, note: str, acks: Acks = NO_ACKS, v: int = 2, **more: Any) -> Body:
        """Send ShareAcknowledge. With ``quiet`` it is not in the transcript."""
        quiet = more.pop("quiet", False)
        body = self.acknowledge_body(acks, **more)
        return self._passed(
            self.s.ask("share_acknowledge", v, on=self.on, note=note, quiet=quiet, **body), body
        )

    def _passed(self, answer: Body, body: Body) -> Body:
        if answer["error_code"] == 0:
            self.session = following(body["share_session_epoch"])
        return answer

    def end_session(self, note: str = "ends its session", acks: Acks = NO_ACKS) -> Body:
        return self.acknowledge(note, acks, share_session_epoch=-1)

    def disconnect(self) -> None:
        self.s.close(self.on)
        self.session = 0


def following(epoch: int) -> int:
    if epoch < 0:
        return 0
    return 1 if epoch == 2**31 - 1 else epoch + 1


def acquired(answer: Body) -> list[Body]:
    """The acquired ranges of a response, of all its partitions."""
    partitions = [each for topic in answer["responses"] for each in topic["partitions"]]
    return [each for partition in partitions for each in partition["acquired_records"]]


def names(topics: Sequence[Topic]) -> list[str]:
    return [topic.name for topic in topics]


def placed(where: Where) -> tuple[Topic, int]:
    return (where, 0) if isinstance(where, Topic) else where


def partitions_of(where: Sequence[Where]) -> list[Body]:
    by_topic: dict[Topic, list[int]] = {}
    for topic, partition in map(placed, where):
        by_topic.setdefault(topic, []).append(partition)
    return [{"topic_id": topic.id, "partitions": parts} for topic, parts in by_topic.items()]


def acknowledged(acks: Acks) -> list[Body]:
    by_topic: dict[Topic, list[Body]] = {}
    for where, rows in acks.items():
        topic, partition = placed(where)
        found = [
            {
                "first_offset": first,
                "last_offset": last,
                "acknowledge_types": [types] if isinstance(types, int) else list(types),
            }
            for first, last, types in rows
        ]
        row = {"partition_index": partition, "acknowledgement_batches": found}
        by_topic.setdefault(topic, []).append(row)
    return [{"topic_id": topic.id, "partitions": rows} for topic, rows in by_topic.items()]


# -- preparations ----------------------------------------------------------------------------------------------------


def configure(s: Story, group: str = "g", **configs: str) -> None:
    """Set configs of a group, and wait until the broker has them. A double underscore means a dot."""
    values = {name.replace("__", "."): value for name, value in configs.items()}
    row = resource(GROUP_RESOURCE, s.name(group), *((name, SET, value) for name, value in values.items()))
    s.quiet("incremental_alter_configs", 1, retry=(), resources=[row], validate_only=False)
    for name, value in values.items():
        settled(s, GROUP_RESOURCE, s.name(group), name, value)


def reconfigure(s: Story, group: str = "g", **configs: str) -> None:
    """Change configs of a group that has sessions. Kafka's leader learns of them a little after DescribeConfigs."""
    configure(s, group, **configs)
    time.sleep(0.1)


def configured(s: Story, note: str, group: str = "g", **configs: str | None) -> None:
    """Change configs of a group, with the response in the transcript."""
    rows = [(name.replace("__", "."), SET, value) for name, value in configs.items()]
    change(s, note, GROUP_RESOURCE, s.name(group), *rows)


def state_topic(s: Story) -> None:
    """Wait until there are share coordinators. The first FindCoordinator for one creates their topic."""
    key = f"g:{uuid_text(raw.ZERO_UUID)}:0"
    s.quiet("find_coordinator", 6, key_type=2, coordinator_keys=[key])


def key_of(group: str, topic: Topic, partition: int) -> str:
    return f"{group}:{uuid_text(topic.id)}:{partition}"


def await_state(s: Story, group: str, topic: Topic, partitions: int) -> None:
    """Wait until the share coordinators of these share partitions have loaded."""
    for partition in range(partitions):
        rows = [{"topic_id": topic.id, "partitions": [{"partition": partition, "leader_epoch": 0}]}]
        s.quiet("read_share_group_state_summary", 0, group_id=group, topics=rows)


def joined(
    s: Story, *topics: Topic, member_id: str = "m", group: str = "g", partitions: int = 1, **configs: Any
) -> Member:
    """A member that has joined and has been assigned all partitions of these topics.

    The group delivers records from the earliest offset on, unless ``configs`` say otherwise.
    """
    configure(s, group, **({"share__auto__offset__reset": "earliest"} | configs))
    member = Member(s, member_id, group)
    s.quiet("find_coordinator", 6, key_type=0, coordinator_keys=[member.group])
    state_topic(s)
    for topic in topics:
        await_state(s, member.group, topic, partitions)
    await_assigned(s, member, len(topics) * partitions, member_epoch=0, subscribed_topic_names=names(topics))
    return member


def await_assigned(s: Story, member: Member, count: int, **first: Any) -> None:
    """Send heartbeats until the member has been assigned this number of partitions. ``first`` is for the first one."""
    deadline = Deadline()
    while True:
        answer = s.quiet("share_group_heartbeat", 1, on=member.coordinator, **member.body(**first))
        member.epoch, first = answer["member_epoch"], {}
        if count_of(answer) >= count:
            return
        deadline.check("all partitions are assigned")
        time.sleep(0.01)


def count_of(answer: Body) -> int:
    """The number of partitions in the assignment of a heartbeat's response."""
    return sum(len(row["partitions"]) for row in (answer["assignment"] or {}).get("topic_partitions", ()))


def filled(s: Story, *sizes: int, topic: Topic | None = None, partition: int = 0) -> Topic:
    """A topic with one batch of each size."""
    topic = topic or s.topic()
    for size in sizes:
        s.produce(topic, s.batch(size), partition=partition, quiet=True)
    return topic


def await_session_end(member: Member) -> None:
    """Wait until the leader has ended the session of a member that has disconnected.

    Until then a new session of the member may end with the former one.
    """
    deadline, body = Deadline(), member.acknowledge_body({}, share_session_epoch=2**31 - 1)
    while (
        member.s.quiet("share_acknowledge", 2, retry=(), on="session", **body)["error_code"]
        != SESSION_NOT_FOUND
    ):
        deadline.check("the session has ended")


def silent(s: Story, pending: Pending, note: str) -> None:
    """Record whether a request is not answered yet."""
    wire = s.wire(pending.on)
    try:
        frame = wire.receive_frame(SILENCE_S)
    except raw.Silence:
        s.put(f"waiting: {note}", "silence")
    else:
        wire.buffer = struct.pack(">i", len(frame)) + frame + wire.buffer
        s.put(f"waiting: {note}", "answered")


# -- operators -------------------------------------------------------------------------------------------------------


def describe(s: Story, note: str = "", group: str = "g", **more: Any) -> Body:
    body: Body = {"group_ids": [s.name(group)], "include_authorized_operations": False}
    return s.ask("share_group_describe", 1, note=note, **(body | more))


def describe_offsets(
    s: Story, note: str, *topics: tuple[str, Sequence[int]], group: str = "g", v: int = 1
) -> Body:
    """Send DescribeShareGroupOffsets; without ``topics`` for all topics of the group."""
    rows = [{"topic_name": name, "partitions": list(parts)} for name, parts in topics] or None
    row = {"group_id": s.name(group), "topics": rows}
    return s.ask("describe_share_group_offsets", v, note=note, groups=[row])


def alter_offsets(s: Story, note: str, *rows: tuple[str, int, int], group: str = "g") -> Body:
    """Send AlterShareGroupOffsets. Each row is (topic name, partition, start offset)."""
    by_name: dict[str, list[Body]] = {}
    for name, partition, offset in rows:
        by_name.setdefault(name, []).append({"partition_index": partition, "start_offset": offset})
    topics = [{"topic_name": name, "partitions": parts} for name, parts in by_name.items()]
    return s.ask("alter_share_group_offsets", 0, note=note, group_id=s.name(group), topics=topics)


def delete_offsets(s: Story, note: str, *topics: str, group: str = "g") -> Body:
    rows = [{"topic_name": name} for name in topics]
    return s.ask("delete_share_group_offsets", 0, note=note, group_id=s.name(group), topics=rows)


def delete_groups(s: Story, note: str, *groups: str, v: int = 2) -> Body:
    return s.ask("delete_groups", v, note=note, groups_names=[s.name(each) for each in groups])


# -- the logs --------------------------------------------------------------------------------------------------------


def group_log(s: Story, note: str = "", group: str = "g") -> None:
    """Add the records of a share group in __consumer_offsets to the transcript, in log order."""
    keys = {key.TYPE: key for key in share_group_log.VALUE_OF}
    name, rows = s.name(group), []
    for record in records_of(s, "__consumer_offsets", partition_for(name, 50)):
        data = bytes(record.key)
        kind = keys.get(int.from_bytes(data[:2], "big"))
        if kind is None:
            continue
        key: Any = kind.decode(data)
        if key.group_id == name:
            value = (
                None if record.value is None else share_group_log.VALUE_OF[kind].decode(bytes(record.value))
            )
            rows.append({"type": kind.TYPE, "key": plain(s, key), "value": plain(s, value)})
    s.put(f"the log {note}".strip(), s.normal.value(rows, "", False))


def plain(s: Story, value: Any) -> Any:
    """A record's key or value as a dict, with hashes as symbols and times as a word."""
    if hasattr(value, "__dataclass_fields__"):
        found = {each.name: plain(s, getattr(value, each.name)) for each in dataclasses.fields(value)}
        if found.get("metadata_hash"):
            found["metadata_hash"] = s.normal.symbol("hash", found["metadata_hash"])
        return found
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        rows = [plain(s, each) for each in value]
        if rows and isinstance(rows[0], dict) and "topic_id" in rows[0]:
            rows.sort(key=lambda row: s.normal.symbol("topic", row["topic_id"]))
        return rows
    return value


def records_of(s: Story, topic: str, partition: int) -> Iterator[Any]:
    """All records of a partition of an internal topic. Records of share states are deleted from time to time."""
    rows = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -2}]}]
    found = s.quiet("list_offsets", 5, replica_id=-1, topics=rows)["topics"][0]["partitions"][0]
    body: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    offset = found["offset"]
    while True:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        answer = s.quiet(
            "fetch", 5, **body, isolation_level=0, topics=[{"topic": topic, "partitions": [row]}]
        )
        before = offset
        for batch in batches(answer["responses"][0]["partitions"][0]["records"] or b""):
            if not batch.is_control:
                yield from batch.records()
            offset = batch.next_offset
        if offset == before:
            return


def state_log(s: Story, note: str, group: str, topic: Topic, partition: int = 0) -> None:
    """Add the records of a share partition in __share_group_state to the transcript, in log order."""
    kinds = {key.TYPE: key for key in share_state_log.VALUE_OF}
    name, rows = s.name(group), []
    for record in records_of(s, "__share_group_state", partition_for(key_of(name, topic, partition), 50)):
        data = bytes(record.key)
        kind = kinds[int.from_bytes(data[:2], "big")]
        key: Any = kind.decode(data)
        if (key.group_id, key.topic_id, key.partition) == (name, topic.id, partition):
            of_kind = share_state_log.VALUE_OF[kind]
            value = None if record.value is None else of_kind.decode(bytes(record.value))
            rows.append({"record": of_kind.__name__.removesuffix("Value"), "value": plain(s, value)})
    s.put(f"the state log {note}".strip(), s.normal.value(rows, "", False))
