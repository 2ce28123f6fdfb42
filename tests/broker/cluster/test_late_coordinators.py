"""Coordinators are created on first use, and then behave as if they had existed since the start."""

from __future__ import annotations

from typing import Any

from broker.cluster.late_coordinators import LateCoordinator, late
from broker.metadata.listeners import MetadataListener
from protocol.hashing import partition_for

TOPIC = "__transaction_state"


class Topic:
    def __init__(self, name: str) -> None:
        self.name = name


class Metadata:
    """A stand-in for ClusterMetadata: it has metadata listeners and, if ``exists`` is true, the coordinator's topic."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.exists = False

    def subscribe(self, listener: Any) -> None:
        self.listeners.append(listener)

    def unsubscribe(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def topic(self, name: str) -> Topic | None:
        return Topic(name) if self.exists and name == TOPIC else None


class Made(MetadataListener):
    """A fake coordinator that records its creation and its calls by name, among them those for metadata changes."""

    def __init__(self, world: World) -> None:
        world.metadata.subscribe(self)
        self._told = world.told
        self._told.append("made")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._told.append(name)

    def on_leader_changed(self, *_: Any) -> None:
        self._told.append("on_leader_changed")

    def on_topic_deleted(self, *_: Any) -> None:
        self._told.append("on_topic_deleted")


class World:
    def __init__(self, *, exists: bool = False) -> None:
        self.metadata = Metadata()
        self.metadata.exists = exists
        self.told: list[str] = []
        self.late: Any = LateCoordinator(TOPIC, 50, self.metadata, lambda: Made(self))  # type: ignore[arg-type]

    def elect(self, topic: str = TOPIC) -> None:
        for listener in tuple(self.metadata.listeners):
            listener.on_leader_changed(Topic(topic), None)


def test_without_its_topic_no_coordinator_is_created() -> None:
    world = World()
    world.late.start()
    world.elect("orders")
    world.late.on_topic_deleted(Topic("orders"))
    world.late.close()
    assert world.told == []


def test_where_the_topic_exists_it_is_made_at_the_start_and_loads() -> None:
    world = World(exists=True)
    world.late.start()
    assert world.told == ["made", "start"]


def test_a_leader_of_its_topic_makes_it_also_before_the_start() -> None:
    world = World()
    world.elect()
    world.late.start()
    assert world.told == ["made", "on_leader_changed", "start"]


def test_one_that_a_request_makes_has_nothing_to_load_and_is_told_of_the_metadata_once() -> None:
    world = World()
    world.late.start()
    world.metadata.exists = True
    world.late.end("id")
    world.late.end("id")
    world.elect()
    assert world.told == ["made", "start_timers", "end", "end", "on_leader_changed"]
    assert world.metadata.listeners == [world.late]


def test_after_the_end_of_a_node_one_that_is_asked_for_is_at_its_end() -> None:
    world = World()
    world.late.start()
    world.late.abandon()
    world.elect()
    assert world.told == []
    world.late.memory()
    assert world.told == ["made", "abandon", "memory"]


def test_who_looks_for_the_coordinator_or_at_all_that_it_keeps_makes_none() -> None:
    world = World()
    world.late.start()
    assert world.late.partition_for("payments") == partition_for("payments", 50)
    assert list(world.late.known()) == []
    assert world.told == []
    world.late.end("id")
    world.late.known()
    assert world.told == ["made", "start_timers", "end", "known"]


def test_share_partitions_are_created_by_the_first_request_of_a_share_group() -> None:
    made: list[str] = []

    class Share:
        is_enabled = True

        def close(self) -> None:
            made.append("closed")

    def make() -> Any:
        made.append("made")
        return Share()

    share = late(make, {"on_disconnected": None, "loaded": {}, "close": None})
    share.on_disconnected(1)
    share.close()
    assert share.loaded() == {}
    assert not made
    assert share.is_enabled
    share.close()
    assert made == ["made", "closed"]
