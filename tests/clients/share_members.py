"""Unmodified members of share groups of three client libraries behind one interface.

    member = MEMBERS["java"](bootstrap, "sharers", "orders")
    take(member, 3, "accept", "release", "reject")    # [(0, 1, "a"), (1, 1, "b"), (2, 1, "c")]
    member.commit()                                   # []
    member.close()

A member acknowledges explicitly, but for confluent-kafka and Java with ``is_implicit``. franz-go has no modes: it accepts at
a poll what the program has not acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from confluent_kafka import AcknowledgeType, ShareConsumer

from tests.support.clients import DEADLINE_S, PATIENCE, offset_of, value_of
from tests.support.deadlines import Deadline
from tests.support.foreign import Program, go_program
from tests.support.javaprog import java_clients

Taken = tuple[int, int, str]
"""Offset, delivery count and value of a record."""
POLL_MS: Final = 100


class Member(Protocol):
    """The first arguments are the bootstrap servers, the group and the topic.

    With ``limit`` a ShareFetch acquires no more records than that, even if they are a part of a batch (KIP-1206).
    """

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, is_implicit: bool = False, limit: int = 0
    ) -> None: ...
    def poll(self) -> list[Taken]: ...
    def acknowledge(self, offset: int, kind: str) -> None: ...
    def commit(self) -> list[str]:
        """Send the acknowledgements, and return the names of their errors."""
        ...

    def renew(self, offset: int) -> list[str]:
        """Renew the lock of a record, and return the names of the errors."""
        ...

    def close(self) -> None: ...


def take(member: Member, count: int, *kinds: str) -> list[Taken]:
    """Poll until so many records have come, and acknowledge each with the next of ``kinds``, which repeat."""
    deadline = Deadline()
    taken: list[Taken] = []
    while len(taken) < count:
        for record in sorted(member.poll()):
            if kinds:
                member.acknowledge(record[0], kinds[len(taken) % len(kinds)])
            taken.append(record)
        deadline.check(f"{count} records; taken: {taken}")
    return taken


class ConfluentMember:
    def __init__(
        self, bootstrap: str, group: str, topic: str, *, is_implicit: bool = False, limit: int = 0
    ) -> None:
        assert not limit, "librdkafka has no ShareAcquireMode"
        self._consumer = ShareConsumer(
            {
                **PATIENCE,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "implicit" if is_implicit else "explicit",
                "fetch.wait.max.ms": 50,
                "retry.backoff.ms": 20,
            }
        )
        self._consumer.subscribe([topic])
        self._topic = topic

    def poll(self) -> list[Taken]:
        records = self._consumer.poll(POLL_MS / 1000)
        return [(offset_of(each), each.delivery_count() or 0, value_of(each).decode()) for each in records]

    def acknowledge(self, offset: int, kind: str) -> None:
        self._consumer.acknowledge_offset(self._topic, 0, offset, AcknowledgeType[kind.upper()])

    def commit(self) -> list[str]:
        outcomes = self._consumer.commit_sync(DEADLINE_S).values()
        return sorted({failed.args[0].name() for failed in outcomes if failed is not None})

    def renew(self, offset: int) -> list[str]:
        raise NotImplementedError("librdkafka sends version 1 of ShareAcknowledge")

    def close(self) -> None:
        self._consumer.close()


class JavaMember:
    def __init__(
        self, bootstrap: str, group: str, topic: str, *, is_implicit: bool = False, limit: int = 0
    ) -> None:
        config: dict[str, str | int] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "implicit" if is_implicit else "explicit",
            "fetch.max.wait.ms": 50,
            "retry.backoff.ms": 20,
        }
        if limit:
            config |= {"share.acquire.mode": "record_limit", "max.poll.records": limit}
        self._java = java_clients()
        self._on = self._java.ask("share-member", config=config, topic=topic)

    def poll(self) -> list[Taken]:
        records = self._java.ask("poll", on=self._on, timeout_ms=POLL_MS)
        return [(offset, count, value) for offset, count, value in records]

    def acknowledge(self, offset: int, kind: str) -> None:
        self._java.ask("acknowledge", on=self._on, offset=offset, type=kind)

    def commit(self) -> list[str]:
        errors: Sequence[str] = self._java.ask("commit", on=self._on)
        return list(errors)

    def renew(self, offset: int) -> list[str]:
        self.acknowledge(offset, "renew")
        errors = self.commit()
        # The next poll returns a renewed record again.
        take(self, 1)
        return errors

    def close(self) -> None:
        self._java.ask("close", on=self._on)


class FranzMember:
    def __init__(
        self, bootstrap: str, group: str, topic: str, *, is_implicit: bool = False, limit: int = 0
    ) -> None:
        self._running = Program(go_program("franz")).start("share", bootstrap, group, topic, limit)

    def poll(self) -> list[Taken]:
        self._running.tell("poll")
        records = self._running.expect("polled", lambda _: True)
        return [(offset, count, value) for offset, count, value in records]

    def acknowledge(self, offset: int, kind: str) -> None:
        self._running.tell(f"acknowledge {offset} {kind}")

    def commit(self) -> list[str]:
        self._running.tell("commit")
        errors: Sequence[str] = self._running.expect("committed", lambda _: True)
        return list(errors)

    def renew(self, offset: int) -> list[str]:
        self.acknowledge(offset, "renew")
        return self.commit()

    def close(self) -> None:
        with self._running:
            self._running.finish()


MEMBERS: Final[Mapping[str, type[Member]]] = {
    "confluent": ConfluentMember,
    "java": JavaMember,
    "franz-go": FranzMember,
}
