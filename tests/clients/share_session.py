"""What members of share groups of three clients get in a session with any broker, as lines of text.

    python -m tests.clients.share_session     records the lines with Apache Kafka

`tests/clients/test_share_groups.py` compares them with the lines with our broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.clients.share_members import MEMBERS, Member, Taken, take
from tests.support import raw
from tests.support.clients import PATIENCE, ConfluentProducer, eventually, read_messages
from tests.support.deadlines import HANG_S
from tests.support.kafka_oracle import ask, kafka

RECORDED: Final = Path(__file__).parent / "share_groups_on_apache_kafka.json"
LOCK_MS_MIN: Final = 1_000
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS_MIN),
    "share.coordinator.state.topic.num.partitions": "1",
}
Lines = Iterator[str]


class World:
    """A scenario's topic, group and members."""

    def __init__(
        self, client: str, scenario: str, bootstrap: str, lock_ms: int, pass_time: Callable[[int], object]
    ) -> None:
        self.name = f"{client}-{scenario}"
        self.topic = f"{self.name}-orders"
        self.group = f"{self.name}-sharers"
        self.bootstrap = bootstrap
        self.lock_ms = lock_ms
        self.pass_time = pass_time
        self._make = MEMBERS[client]
        self._admin = AdminClient({**PATIENCE, "bootstrap.servers": bootstrap})
        host, port = bootstrap.split(":")
        self._wire = raw.Wire(host, int(port))
        self._members: list[Member] = []

    def begin(self, *batches: str, is_new: bool = False, **configs: object) -> None:
        """Create the topic, write a batch of records for each text, and set the group's configs.

        Unless the group ``is_new``, it has read the topic before: a member has its partitions after its first heartbeat.
        """
        for made in self._admin.create_topics([NewTopic(self.topic, 1, 1)]).values():
            made.result(HANG_S)
        for batch in batches:
            self.write(batch)
        if is_new:
            configs["share__auto__offset__reset"] = "earliest"
        self.configure(**configs)
        if not is_new:
            rows = [{"topic_name": self.topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
            eventually(lambda: self._alter(rows), "the group has an offset")

    def _alter(self, rows: Sequence[Any]) -> bool:
        answer = ask(self._wire, "alter_share_group_offsets", 0, group_id=self.group, topics=rows)
        return not any(raw.error_codes(answer))

    def configure(self, **configs: object) -> None:
        entries = [
            ConfigEntry(name.replace("__", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        if entries:
            group = ConfigResource(ConfigResource.Type.GROUP, self.group, incremental_configs=entries)
            for done in self._admin.incremental_alter_configs([group]).values():
                done.result(HANG_S)

    def write(self, batch: str) -> None:
        # A batch is sent at the flush: its records are in the producer's queue before the linger ends.
        producer = ConfluentProducer(self.bootstrap, idempotent=False, linger_ms=1_000)
        producer.send(self.topic, list(batch))
        producer.close()

    def member(self, **more: Any) -> Member:
        made = self._make(self.bootstrap, self.group, self.topic, **more)
        self._members.append(made)
        return made

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        member.close()

    def close(self) -> None:
        for each in self._members:
            each.close()
        self._wire.close()

    def until_lag(self, count: int) -> str:
        """Wait until so many records are not delivered or not acknowledged yet."""
        groups = [{"group_id": self.group, "topics": [{"topic_name": self.topic, "partitions": [0]}]}]

        def is_so() -> bool:
            answer = ask(self._wire, "describe_share_group_offsets", 1, groups=groups)
            return bool(answer["groups"][0]["topics"][0]["partitions"][0]["lag"] == count)

        eventually(is_so, f"lag {count}")
        return f"lag {count}"

    def described(self) -> str:
        [group] = ask(self._wire, "share_group_describe", 1, group_ids=[self.group])["groups"]
        members = [each["subscribed_topic_names"] == [self.topic] for each in group["members"]]
        return f"{group['group_state']} by {group['assignor_name']}, members {members}"

    def letters(self, topic: str, count: int) -> Lines:
        """The records of a dead-letter queue."""
        eventually(lambda: topic in self._admin.list_topics(timeout=HANG_S).topics, f"{topic} exists")
        for each in sorted(read_messages(self.bootstrap, topic, expected=count), key=lambda m: m.headers()):
            headers = {name: value.decode() for name, value in each.headers()}
            yield f"{each.key()} {each.value()} {headers}"


def shown(taken: Sequence[Taken]) -> str:
    return " ".join(f"{offset}:{value}x{count}" for offset, count, value in sorted(taken))


# ---- scenarios


def acknowledged(world: World) -> Lines:
    """Records are accepted, released and rejected."""
    world.begin("abcdef", is_new=True)
    member = world.member()
    yield shown(take(member, 6, "accept", "release", "reject"))
    yield f"committed {member.commit()}"
    yield world.until_lag(2)
    yield shown(take(member, 2, "accept"))
    yield f"committed {member.commit()}"
    yield world.until_lag(0)
    yield world.described()
    world.leave(member)
    yield world.described()


def delivered_again(world: World) -> Lines:
    """A member gets what another one has released, held when it left, or held too long."""
    world.begin("abcd", share__record__lock__duration__ms=world.lock_ms)
    first = world.member()
    yield shown(take(first, 4, "release", "accept"))
    yield f"committed {first.commit()}"
    second = world.member()
    yield shown([*take(second, 2, "accept")])
    world.pass_time(world.lock_ms)
    yield shown(take(first, 2, "accept"))
    yield f"committed {second.commit()}"
    yield f"committed {first.commit()}"
    yield world.until_lag(0)


def left(world: World) -> Lines:
    """Records that a member holds when it leaves are delivered to another one."""
    world.begin("abc")
    first = world.member()
    yield shown(take(first, 3))
    world.write("def")
    second = world.member()
    yield shown(take(second, 3, "accept"))
    world.leave(first)
    yield shown(take(second, 3, "accept"))
    yield f"committed {second.commit()}"
    yield world.until_lag(0)


def limited(world: World) -> Lines:
    """A record that is released too often is not delivered again."""
    world.begin("abc", share__delivery__count__limit=2)
    member = world.member()
    for _ in range(2):
        yield shown(take(member, 3, "release"))
        yield f"committed {member.commit()}"
    world.write("d")
    yield shown(take(member, 1, "accept"))
    yield f"committed {member.commit()}"
    yield world.until_lag(0)


def implicit(world: World) -> Lines:
    """What is not acknowledged is accepted by the next poll."""
    world.begin("abc")
    member = world.member(is_implicit=True)
    yield shown(take(member, 3))
    world.write("def")
    yield shown(take(member, 3))
    yield world.until_lag(3)
    yield f"committed {member.commit()}"


def transactions(world: World) -> Lines:
    """With read_committed, records of aborted transactions are not delivered, and those of an open one wait for its end."""
    world.begin(share__isolation__level="read_committed")
    producer = ConfluentProducer(world.bootstrap, transactional_id=world.name)
    producer.init()
    for values, end in (("abc", producer.commit), ("def", producer.abort)):
        producer.begin()
        producer.send(world.topic, list(values))
        end()
    producer.begin()
    producer.send(world.topic, ["g"])
    member = world.member()
    yield shown(take(member, 3, "accept"))
    yield f"committed {member.commit()}"
    producer.commit()
    yield shown(take(member, 1, "accept"))
    yield f"committed {member.commit()}"
    producer.close()


def dead_letters(world: World) -> Lines:
    """Records that are rejected, or released too often, are in the dead-letter queue."""
    queue = f"dlq.{world.name}"
    world.begin(
        "ab",
        share__delivery__count__limit=2,
        errors__deadletterqueue__topic__name=queue,
        errors__deadletterqueue__copy__record__enable="true",
    )
    member = world.member()
    yield shown(take(member, 2, "reject", "release"))
    yield f"committed {member.commit()}"
    yield shown(take(member, 1, "release"))
    yield f"committed {member.commit()}"
    yield from world.letters(queue, 2)
    yield world.until_lag(0)


def renewed(world: World) -> Lines:
    """A renewed lock lasts longer (KIP-1222)."""
    world.begin("a", share__record__lock__duration__ms=world.lock_ms)
    member = world.member()
    yield shown(take(member, 1))
    world.pass_time(world.lock_ms * 3 // 4)
    yield f"renewed {member.renew(0)}"
    world.pass_time(world.lock_ms * 3 // 4)
    member.acknowledge(0, "accept")
    yield f"committed {member.commit()}"
    yield world.until_lag(0)


def record_limit(world: World) -> Lines:
    """Members acquire parts of a batch (KIP-1206)."""
    world.begin("abcdef")
    first, second = world.member(limit=2), world.member(limit=2)
    yield shown(first_poll(first))
    yield shown(first_poll(second))


def first_poll(member: Member) -> list[Taken]:
    return eventually(member.poll, "records")


SCENARIOS: Final = {
    each.__name__: each
    for each in (
        acknowledged,
        delivered_again,
        left,
        limited,
        implicit,
        transactions,
        dead_letters,
        renewed,
        record_limit,
    )
}
BEYOND: Final[Mapping[str, frozenset[str]]] = {
    "confluent": frozenset({"renewed", "record_limit"}),
    "java": frozenset(),
    "franz-go": frozenset(),
}
"""Scenarios of features that a client lacks."""


def told(
    client: str, scenario: str, bootstrap: str, lock_ms: int, pass_time: Callable[[int], object]
) -> list[str]:
    """The lines of a scenario with locks that last ``lock_ms``. ``pass_time`` lets the broker's clock pass so long."""
    world = World(client, scenario, bootstrap, lock_ms, pass_time)
    try:
        return [line.replace(f"{client}-", "") for line in SCENARIOS[scenario](world)]
    finally:
        world.close()


def told_with_kafka() -> dict[str, dict[str, list[str]]]:
    with kafka(SETTINGS) as oracle:
        bootstrap = f"{oracle.host}:{oracle.port}"
        return {
            client: {
                scenario: told(client, scenario, bootstrap, LOCK_MS_MIN, lambda ms: time.sleep(ms / 1000))
                for scenario in SCENARIOS
                if scenario not in BEYOND[client]
            }
            for client in MEMBERS
        }


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(told_with_kafka(), indent=1) + "\n")
