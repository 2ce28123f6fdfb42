"""Elections and reassignments with one broker: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from typing import Any

from tests.differential.story import Body, Story, Topic, story


def elect(s: Story, note: str, rows: list[Body] | None, v: int = 2, **more: Any) -> None:
    s.ask("elect_leaders", v, topic_partitions=rows, timeout=10_000, note=note, **more)


def of(t: Topic | str, *partitions: int) -> Body:
    return {"topic": t if isinstance(t, str) else t.name, "partitions": list(partitions)}


@story("leaders")
def elections(s: Story) -> None:
    """A partition whose preferred replica leads needs no election; an unknown partition gets an error."""
    t = s.topic(2)
    for v in range(3):
        for kind in (0, 1) if v else (0,):
            elect(s, f"kind {kind}", [of(t, 0, 1)], v, election_type=kind)
        elect(s, "partitions that are not there", [of(t, 2, -1), of(s.name("missing"), 0)], v)
        elect(s, "nothing", [], v)
        elect(s, "a topic without partitions", [of(t)], v)
        elect(s, "twice", [of(t, 0, 0), of(t, 0)], v)
    for kind in (2, -1, 127):
        elect(s, f"unknown kind {kind}", [of(t, 0, 1), of(s.name("missing"), 0)], election_type=kind)
        elect(s, f"unknown kind {kind}, nothing", [], election_type=kind)


@story("leaders")
def elections_everywhere(s: Story) -> None:
    """ElectLeaders for all partitions: the response lists all topics, without partitions."""
    t = s.topic(2)
    for v in range(3):
        for kind in (0, 1) if v else (0,):
            answer = s.quiet("elect_leaders", v, topic_partitions=None, timeout=10_000, election_type=kind)
            rows = {row["topic"]: row["partition_result"] for row in answer["replica_election_results"]}
            own = {name.replace(s.prefix, "~"): row for name, row in rows.items() if name == t.name}
            s.put(f"v{v}, kind {kind}", {"error": answer.get("error_code"), "rows": own})
    s.put("others", [row for row in rows.values() if row])


def move(
    s: Story, note: str, t: Topic | str, moves: dict[int, list[int] | None], v: int = 1, **more: Any
) -> None:
    rows = [{"partition_index": index, "replicas": replicas} for index, replicas in moves.items()]
    name = t if isinstance(t, str) else t.name
    body: dict[str, Any] = {"topics": [{"name": name, "partitions": rows}], "timeout": 10_000}
    s.ask("alter_partition_reassignments", v, note=note, **body, **more)


@story("leaders")
def moves(s: Story) -> None:
    t = s.topic(2)
    for v in range(2):
        move(s, "to where it is", t, {0: [1]}, v)
        move(s, "to a broker that is not there", t, {0: [2], 1: [1, 2]}, v)
        move(s, "to nobody", t, {0: []}, v)
        move(s, "twice to one", t, {0: [1, 1]}, v)
        move(s, "twice to nobody", t, {0: [7, 7]}, v)
        move(s, "given up", t, {0: None, 1: None}, v)
        move(s, "partitions that are not there", t, {2: [1], -1: None}, v)
        move(s, "a topic that is not there", s.name("missing"), {0: [1]}, v)
        move(s, "nothing of a topic", t, {}, v)
        s.ask("alter_partition_reassignments", v, topics=[], timeout=10_000, note="nothing")
    for replicas in ([1], [1, 2], []):
        move(s, f"the factor stays: {replicas}", t, {0: replicas}, allow_replication_factor_change=False)


@story("leaders")
def moves_under_way(s: Story) -> None:
    """ListPartitionReassignments returns an empty list while no reassignment is in progress."""
    t = s.topic(2)
    missing = s.name("missing")
    asked: dict[str, list[Body] | None] = {
        "all": None,
        "nothing": [],
        "one": [{"name": t.name, "partition_indexes": [0, 1, 7]}],
        "missing": [{"name": missing, "partition_indexes": [0]}],
        "no partitions": [{"name": t.name, "partition_indexes": []}],
    }
    for note, topics in asked.items():
        s.ask("list_partition_reassignments", 0, topics=topics, timeout=10_000, note=note)
