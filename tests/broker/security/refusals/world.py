"""The state before the first request of the matrix: topics, groups, a transaction, and the ACLs of the principals."""

from __future__ import annotations

import struct
import uuid
from typing import Any, Final

from protocol.hashing import partition_for
from tests.broker.security.refusals.principals import ADMIN, PRINCIPALS
from tests.broker.security.refusals.sides import Body, Side
from tests.differential.batches import batch
from tests.support import raw

TOPICS: Final = ("open-a", "shut-a")
GROUPS: Final = ("open-g", "shut-g")
CONSUMER_GROUPS: Final = {"open-c": "open-a", "shut-c": "open-a", "open-cs": "shut-a"}
"""Consumer groups (KIP-848) with one member each, and the topic that is assigned to this member."""
SHARE_GROUPS: Final = {"open-s": "open-a", "shut-s": "open-a", "open-ss": "shut-a"}
"""Share groups with one member each, and the topic that is assigned to this member."""
TRANSACTIONS: Final = ("open-x", "shut-x")
"""Transactional ids with an open transaction that contains partition 0 of each topic in ``TOPICS``."""
BATCH: Final = batch(1, ts=1_700_000_000_000)
TOKEN_OWNERS: Final = ("open-u", "shut-u")
NO_PRODUCER: Final = 4_000_000
"""A producer id that was never allocated."""


class World:
    """One broker in the state that the requests of the matrix need."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._fresh = 0
        self._warm_up()
        for name in TOPICS:
            self.create(name)
            self.produce(name)
        for group in GROUPS:
            self.commit(group)
        for group, topic in CONSUMER_GROUPS.items():
            self._consume(group, topic)
        for transactional_id in TRANSACTIONS:
            self._begin(transactional_id)
        self.hmacs = {user: self._token(user) for user in TOKEN_OWNERS}
        for user, acls in PRINCIPALS.items():
            if acls:
                side.grant(user, acls)

    def admin(self, api: str, version: int, body: Body, *, until: tuple[int, ...] = (0,)) -> Body:
        """Repeat a request of the administrator until the error codes of the response are in ``until``, as a coordinator may
        still be loading."""
        while True:
            answer = self.side.ask(ADMIN, api, version, body, on="set-up")
            assert isinstance(answer, dict), (api, version, answer)
            if set(raw.error_codes(answer)) <= set(until):
                return answer

    def fresh(self, start: str) -> str:
        """A name that no earlier request has used."""
        self._fresh += 1
        return f"{start}-n{self._fresh}"

    def _warm_up(self) -> None:
        """Create both internal topics, and load the coordinator of each of their partitions."""
        for kind in (0, 1):
            self.admin("find_coordinator", 1, {"key": "warm", "key_type": kind})
        names: dict[int, str] = {}
        number = 0
        while len(names) < 50:
            names.setdefault(partition_for(f"warm-{number}", 50), f"warm-{number}")
            number += 1
        for name in names.values():
            body: Body = {"group_id": name, "generation_id": 0, "member_id": "m"}
            self.admin("heartbeat", 0, body, until=(25,))
            body = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "committed": True}
            self.admin("end_txn", 0, body, until=(49,))

    # -- resources ----------------------------------------------------------------------------------------------

    def create(self, name: str) -> uuid.UUID:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        answer = self.admin("create_topics", 7, {"topics": [topic], "timeout": 30_000}, until=(0, 36))
        topic_id: uuid.UUID = answer["topics"][0]["topic_id"]
        if topic_id:
            self.topic_ids[name] = topic_id
        body = {
            "replica_id": -1,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        }
        self.admin("list_offsets", 1, body)
        return self.topic_ids[name]

    def id_of(self, name: str) -> uuid.UUID:
        """The id of a topic, or an id that no topic has."""
        return self.topic_ids.get(name) or uuid.uuid5(uuid.NAMESPACE_OID, name)

    def produce(self, name: str) -> None:
        data = [{"index": 0, "records": BATCH}]
        self.admin(
            "produce",
            9,
            {"acks": -1, "timeout": 30_000, "topic_data": [{"name": name, "partition_data": data}]},
        )

    def commit(self, group: str) -> None:
        """Commit offsets of a group without members."""
        topics = [
            {
                "name": name,
                "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
            }
            for name in TOPICS
        ]
        body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        self.admin("offset_commit", 8, body)

    def _consume(self, group: str, topic: str) -> None:
        body: Body = {
            "group_id": group,
            "member_id": f"member-of-{group}",
            "rebalance_timeout": 300_000,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        }
        answer = self.admin("consumer_group_heartbeat", 1, body)
        owned: list[Any] = []
        while not owned:
            later = body | {"member_epoch": answer["member_epoch"]}
            answer = self.admin("consumer_group_heartbeat", 1, later)
            owned = (answer["assignment"] or {}).get("topic_partitions", [])
        self.admin("consumer_group_heartbeat", 1, later | {"topic_partitions": owned})

    def share(self) -> None:
        """Join each group of ``SHARE_GROUPS``, and wait for its assignment."""
        for group, topic in SHARE_GROUPS.items():
            body: Body = {
                "group_id": group,
                "member_id": f"member-of-{group}",
                "member_epoch": 0,
                "subscribed_topic_names": [topic],
            }
            while not self.admin("share_group_heartbeat", 1, body)["assignment"]["topic_partitions"]:
                pass

    def alter_share_offsets(self, group: str) -> None:
        """Set the start offsets of a share group without members."""
        partitions = [{"partition_index": 0, "start_offset": 1}]
        topics = [{"topic_name": name, "partitions": partitions} for name in TOPICS]
        self.admin("alter_share_group_offsets", 0, {"group_id": group, "topics": topics})

    def _token(self, user: str) -> bytes:
        """Create a delegation token for this user and return its HMAC."""
        body: Body = {
            "owner_principal_type": "User",
            "owner_principal_name": user,
            "renewers": [],
            "max_lifetime": -1,
        }
        hmac: bytes = self.admin("create_delegation_token", 3, body)["hmac"]
        return hmac

    def _begin(self, transactional_id: str) -> None:
        body: Body = {"transactional_id": transactional_id, "transaction_timeout": 3_000_000}
        answer = self.admin("init_producer_id", 4, body)
        producer = {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}
        topics = [{"name": name, "partitions": [0]} for name in TOPICS]
        body = {f"v3_and_below_{name}": value for name, value in producer.items()}
        body |= {"v3_and_below_transactional_id": transactional_id, "v3_and_below_topics": topics}
        self.admin("add_partitions_to_txn", 3, body)


def transactional_batch(producer_id: int = NO_PRODUCER, epoch: int = 0, seq: int = 0) -> bytes:
    return batch(1, ts=1_700_000_000_000, pid=producer_id, epoch=epoch, seq=seq, txn=True)


def subscription(*topics: str) -> bytes:
    """The subscription of a member of the classic protocol, in the bytes of JoinGroup."""
    out = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    return out + struct.pack(">i", -1)
