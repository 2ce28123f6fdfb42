"""The stories: sequences of requests with changes of permissions between them."""

from __future__ import annotations

from typing import Any

from tests.broker.security.refusals.principals import ANONYMOUS, CLUSTER_NAME, DENY, Acl
from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.story import Story, story
from tests.broker.security.refusals.world import BATCH, subscription
from tests.differential.batches import batch
from tests.support import raw

WRITE, READ, DESCRIBE, CREATE = "WRITE", "READ", "DESCRIBE", "CREATE"
CONCURRENT_TRANSACTIONS = 51
TOPIC, GROUP, CLUSTER, ID = "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"


class Transactional:
    """A transactional producer of a story, with its id, epoch and sequence numbers."""

    def __init__(self, s: Story) -> None:
        self.s, self.id = s, s.named("t")
        body: Body = {"transactional_id": self.id, "transaction_timeout": 600_000}
        answer = s.ask("begin", "init_producer_id", 4, body)
        self.producer = {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}
        self.sequences: dict[str, int] = {}

    def add(self, note: str, *topics: str) -> None:
        mine: Body = {
            "transactional_id": self.id,
            "topics": [{"name": topic, "partitions": [0]} for topic in topics],
            **self.producer,
        }
        body = {f"v3_and_below_{name}": value for name, value in mine.items()}
        self.s.ask(note, "add_partitions_to_txn", 3, body)

    def produce(self, note: str, version: int, *topics: str) -> None:
        rows = []
        for topic in topics:
            seq = self.sequences.get(topic, 0)
            pid, epoch = self.producer["producer_id"], self.producer["producer_epoch"]
            data = batch(1, ts=1_700_000_000_000, pid=pid, epoch=epoch, seq=seq, txn=True)
            rows.append({"name": topic, "partition_data": [{"index": 0, "records": data}]})
        body: Body = {"transactional_id": self.id, "acks": -1, "timeout": 30_000, "topic_data": rows}
        answer = self.s.until(note, "produce", version, body, _no_transaction_ends)
        for topic in answer["responses"]:
            if topic["partition_responses"][0]["error_code"] == 0:
                self.sequences[topic["name"]] = self.sequences.get(topic["name"], 0) + 1

    def add_offsets(self, note: str, group: str) -> None:
        body: Body = {"transactional_id": self.id, "group_id": group, **self.producer}
        self.s.ask(note, "add_offsets_to_txn", 3, body)

    def commit_offsets(self, note: str, version: int, group: str, *topics: str) -> None:
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        body: Body = {
            "transactional_id": self.id,
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": [part]} for topic in topics],
            **self.producer,
        }
        self.s.ask(note, "txn_offset_commit", version, body)

    def end(self, note: str, version: int, *, committed: bool = True) -> None:
        body: Body = {"transactional_id": self.id, "committed": committed, **self.producer}
        answer = self.s.ask(note, "end_txn", version, body)
        if version >= 5 and answer["error_code"] == 0:
            self.producer["producer_epoch"] = answer["producer_epoch"]
            self.sequences.clear()


def _no_transaction_ends(answer: Body) -> bool:
    return CONCURRENT_TRANSACTIONS not in raw.error_codes(answer)


@story
def id_lost_between_add_partitions_and_end(s: Story) -> None:
    topic = s.topic()
    s.may((TOPIC, WRITE, topic), (ID, WRITE, s.named("t")))
    t = Transactional(s)
    t.add("the partition joins", topic)
    t.produce("records", 9, topic)
    s.may_not((ID, WRITE, s.named("t")))
    t.produce("without the id", 9, topic)
    t.add("without the id", topic)
    t.end("without the id", 3)
    s.ask("without the id", "init_producer_id", 4, {"transactional_id": t.id, "transaction_timeout": 600_000})
    s.may((ID, WRITE, s.named("t")))
    t.end("with the id again", 3)


@story
def topic_lost_between_add_partitions_and_end(s: Story) -> None:
    topic, other = s.topic(), s.topic("b")
    s.may((TOPIC, WRITE, s.named("*")), (ID, WRITE, s.named("t")))
    t = Transactional(s)
    t.add("both partitions join", topic, other)
    t.produce("records", 9, topic, other)
    s.may_not((TOPIC, WRITE, s.named("*")))
    s.may((TOPIC, WRITE, topic))
    t.produce("one topic is lost", 9, topic, other)
    t.add("one topic is lost", topic, other)
    t.end("the end needs no topic", 3)


@story
def partitions_that_join_by_themselves(s: Story) -> None:
    """Story of transactions to which Produce adds the partitions (transactions of version 2, KIP-890).

    The user may write to one of two topics, and loses the permission for the transactional id."""
    topic, other = s.topic(), s.topic("b")
    s.may((TOPIC, WRITE, topic), (ID, WRITE, s.named("t")))
    t = Transactional(s)
    t.produce("one of two topics", 12, topic, other)
    t.end("commit", 5)
    t.produce("the next transaction", 12, topic)
    s.may_not((ID, WRITE, s.named("t")))
    t.produce("without the id", 12, topic)
    t.end("without the id", 5, committed=False)
    s.may((ID, WRITE, s.named("t")))
    t.end("with the id again", 5, committed=False)


@story
def offsets_in_a_transaction(s: Story) -> None:
    topic, other, group = s.topic(), s.topic("b"), s.named("g")
    s.may((ID, WRITE, s.named("t")))
    t = Transactional(s)
    t.add_offsets("without the group", group)
    t.commit_offsets("without the group", 3, group, topic)
    s.may((GROUP, READ, group), (TOPIC, READ, topic))
    t.add_offsets("with the group", group)
    t.commit_offsets("one of two topics", 3, group, topic, other)
    s.may_not((GROUP, READ, group))
    t.commit_offsets("the group is lost", 3, group, topic)
    s.may_not((ID, WRITE, s.named("t")))
    t.commit_offsets("the id is lost too", 3, group, topic)
    t.end("the id is lost too", 3)
    s.may((ID, WRITE, s.named("t")), (GROUP, READ, group))
    t.end("all is there again", 3)


@story
def offsets_that_join_by_themselves(s: Story) -> None:
    """Story of a transaction to which TxnOffsetCommit adds the group (transactions of version 2, KIP-890).

    The user gets the permission to read the group, and loses the permission to read the only readable topic."""
    topic, other, group = s.topic(), s.topic("b"), s.named("g")
    s.may((ID, WRITE, s.named("t")), (TOPIC, READ, topic))
    t = Transactional(s)
    t.commit_offsets("without the group", 5, group, topic, other)
    s.may((GROUP, READ, group))
    t.commit_offsets("one of two topics", 5, group, topic, other)
    s.may_not((TOPIC, READ, topic))
    t.commit_offsets("no topic", 5, group, topic, other)
    t.end("commit", 5)


@story
def ids_of_idempotent_producers(s: Story) -> None:
    topic = s.topic()
    wanted: Body = {"transactional_id": None, "transaction_timeout": 60_000}
    s.ask("no right", "init_producer_id", 4, wanted)
    s.may((CLUSTER, "IDEMPOTENT_WRITE", CLUSTER_NAME))
    s.ask("of the cluster", "init_producer_id", 4, wanted)
    s.may_not((CLUSTER, "IDEMPOTENT_WRITE", CLUSTER_NAME))
    s.may((TOPIC, READ, "*"))
    s.ask("to read only", "init_producer_id", 4, wanted)
    s.may((TOPIC, WRITE, topic))
    s.ask("to write to one topic", "init_producer_id", 4, wanted)
    s.side.grant(s.user, [Acl(TOPIC, topic, WRITE, DENY)])
    s.ask("but not to this one", "init_producer_id", 4, wanted)
    s.may((TOPIC, "ALL", s.named("*")))
    s.ask("to do all with some", "init_producer_id", 4, wanted)
    s.side.grant(s.user, [Acl(TOPIC, "*", WRITE, DENY)])
    s.ask("but to write to none", "init_producer_id", 4, wanted)


def _session(s: Story, version: int, first: str, second: str) -> None:
    """Story of a fetch session of two topics. The user loses the permission for the second topic, gets it back, and
    loses both permissions."""
    s.may((TOPIC, READ, first), (TOPIC, READ, second))
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [
        {**({"topic_id": s.world.id_of(name)} if version >= 13 else {"topic": name}), "partitions": [part]}
        for name in (first, second)
    ]
    body: Body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics}
    if version >= 15:
        del body["replica_id"]
    answer = s.ask("the session begins", "fetch", version, body | {"session_epoch": 0})
    session = {"session_id": answer["session_id"], "topics": []}
    s.ask("nothing new", "fetch", version, body | session | {"session_epoch": 1})
    s.may_not((TOPIC, READ, second))
    s.ask("one topic is lost", "fetch", version, body | session | {"session_epoch": 2})
    s.ask("it is still lost", "fetch", version, body | session | {"session_epoch": 3})
    s.world.produce(first)
    s.ask("the other goes on", "fetch", version, body | session | {"session_epoch": 4})
    s.may((TOPIC, READ, second))
    s.ask("it is back", "fetch", version, body | session | {"session_epoch": 5})
    s.may_not((TOPIC, READ, first), (TOPIC, READ, second))
    s.ask("both are lost", "fetch", version, body | session | {"session_epoch": 6})


@story
def a_fetch_session_by_names(s: Story) -> None:
    _session(s, 12, s.topic(), s.topic("b"))


@story
def a_fetch_session_by_ids(s: Story) -> None:
    _session(s, 17, s.topic(), s.topic("b"))


@story
def a_classic_group(s: Story) -> None:
    topic, group = s.topic(), s.named("g")
    s.may((GROUP, READ, group), (TOPIC, READ, topic))
    wanted: Body = {
        "group_id": group,
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
    }
    first = s.side.ask(s.user, "join_group", 5, wanted)
    assert isinstance(first, dict)
    wanted["member_id"] = first["member_id"]
    joined = s.side.ask(s.user, "join_group", 5, wanted)
    assert isinstance(joined, dict)
    mine: Body = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
    }
    own = [{"member_id": joined["member_id"], "assignment": b""}]
    sync: Body = mine | {"protocol_type": "consumer", "protocol_name": "range", "assignments": own}
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    commit: Body = {
        "group_id": group,
        "generation_id_or_member_epoch": joined["generation_id"],
        "member_id": joined["member_id"],
        "topics": [{"name": topic, "partitions": [part]}],
    }

    def everything(note: str) -> None:
        s.ask(note, "sync_group", 5, sync)
        s.ask(note, "heartbeat", 4, mine)
        s.ask(note, "offset_commit", 8, commit)

    everything("with the group and the topic")
    s.may_not((TOPIC, READ, topic))
    everything("the topic is lost")
    s.may_not((GROUP, READ, group))
    everything("the group is lost")
    s.ask("the group is lost", "join_group", 9, wanted)
    leaving: Body = {"group_id": group, "members": [{"member_id": joined["member_id"]}]}
    s.ask("the group is lost", "leave_group", 4, leaving)
    s.may((GROUP, DESCRIBE, group))
    s.ask("to see it is not to be in it", "heartbeat", 4, mine)
    s.ask("to see it is to see it", "find_coordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
    s.may((GROUP, READ, group))
    s.ask("the group is back", "heartbeat", 4, mine)
    s.ask("the group is back", "leave_group", 4, leaving)


def _assigned(answer: Body) -> bool:
    return bool((answer["assignment"] or {}).get("topic_partitions"))


@story
def a_consumer_group(s: Story) -> None:
    topic, group = s.topic(), s.named("g")
    s.may((GROUP, READ, group))
    join: Body = {
        "group_id": group,
        "member_id": "m",
        "rebalance_timeout": 300_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    s.ask("without the topic", "consumer_group_heartbeat", 1, join)
    s.may((TOPIC, DESCRIBE, topic))
    joined = s.until("with the topic", "consumer_group_heartbeat", 1, join, _assigned)
    owned = joined["assignment"]["topic_partitions"]
    beat: Body = {"group_id": group, "member_id": "m", "member_epoch": joined["member_epoch"]}
    s.ask("a heartbeat", "consumer_group_heartbeat", 1, beat | {"topic_partitions": owned})
    s.ask("seen", "consumer_group_describe", 1, {"group_ids": [group]})
    s.may_not((TOPIC, DESCRIBE, topic))
    s.ask("the topic is lost, and not named", "consumer_group_heartbeat", 1, beat)
    named = beat | {"subscribed_topic_names": [topic]}
    s.ask("the topic is lost, and named", "consumer_group_heartbeat", 1, named)
    s.ask("the topic is lost", "consumer_group_describe", 1, {"group_ids": [group]})
    s.may_not((GROUP, READ, group))
    s.ask("the group is lost", "consumer_group_heartbeat", 1, beat)
    s.ask("the group is lost", "consumer_group_describe", 1, {"group_ids": [group]})


@story
def a_regular_expression(s: Story) -> None:
    """Story of a member whose regular expression matches two topics: only the one that it may describe is assigned."""
    topic, group = s.topic(), s.named("g")
    s.topic("b")
    s.may((GROUP, READ, group), (TOPIC, DESCRIBE, topic))
    join: Body = {
        "group_id": group,
        "member_id": "m",
        "rebalance_timeout": 300_000,
        "subscribed_topic_regex": s.named(".*"),
        "topic_partitions": [],
    }
    answer = s.side.ask(s.user, "consumer_group_heartbeat", 1, join)
    assert isinstance(answer, dict)
    beat: Body = {"group_id": group, "member_id": "m", "member_epoch": answer["member_epoch"]}
    joined = s.until("one of two topics", "consumer_group_heartbeat", 1, beat, _assigned)
    assert len(joined["assignment"]["topic_partitions"]) == 1


@story
def topics_that_are_created(s: Story) -> None:
    def missing(note: str, *suffixes: str) -> None:
        names = [s.named(suffix) for suffix in suffixes]
        s.ask(note, "metadata", 9, {"topics": [{"name": name} for name in names]})

    def create(note: str, *suffixes: str) -> None:
        topics: list[Any] = [
            {"name": s.named(suffix), "num_partitions": 1, "replication_factor": 1} for suffix in suffixes
        ]
        s.ask(note, "create_topics", 7, {"topics": topics, "timeout": 30_000})

    missing("no right", "a", "b")
    create("no right", "a")
    s.may((TOPIC, DESCRIBE, s.named("*")))
    missing("to know of them", "a", "b")
    create("to know of them", "a")
    s.may((TOPIC, CREATE, s.named("a")))
    missing("to create one of them", "a", "b")
    create("to create one of them", "b", "c")
    s.may((CLUSTER, CREATE, CLUSTER_NAME))
    create("to create all", "d")
    s.may((TOPIC, "DESCRIBE_CONFIGS", s.named("*")))
    create("and to know of their settings", "e")


@story
def requests_without_a_response(s: Story) -> None:
    topic = s.topic()

    def body(records: bytes, transactional_id: str | None = None) -> Body:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        return {"acks": 0, "timeout": 30_000, "transactional_id": transactional_id, "topic_data": data}

    s.send("no right", "produce", 9, body(BATCH))
    s.may((TOPIC, WRITE, topic))
    s.send("to write", "produce", 9, body(BATCH))
    transactional = batch(1, ts=1_700_000_000_000, pid=5, epoch=0, seq=0, txn=True)
    s.send("without the id", "produce", 9, body(transactional, s.named("t")))


@story
def clients_that_are_anonymous(s: Story) -> None:
    """Story of a client on a listener without SASL: the user ANONYMOUS sends Produce without, with and again without
    the permission to write. Then another user looks up the coordinator of a share partition, by FindCoordinator v6 and
    v5."""
    topic = s.topic()
    data = [{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}]
    body: Body = {"acks": -1, "timeout": 30_000, "topic_data": data}
    s.ask("no right", "produce", 9, body, user=ANONYMOUS)
    right = [Acl(TOPIC, topic, WRITE)]
    s.side.grant(ANONYMOUS, right)
    s.ask("to write", "produce", 9, body, user=ANONYMOUS)
    s.side.revoke(ANONYMOUS, right)
    s.ask("no right again", "produce", 9, body, user=ANONYMOUS)
    keys: Body = {"key_type": 2, "coordinator_keys": ["open-g:AAAAAAAAAAAAAAAAAAAAAA:0"]}
    s.ask("a share partition", "find_coordinator", 6, keys)
    s.ask("a share partition, before there were any", "find_coordinator", 5, keys)
