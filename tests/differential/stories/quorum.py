"""The controller quorum and registered brokers: DescribeQuorum, voters, UnregisterBroker."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.story import Body, Story, story

METADATA = "__cluster_metadata"


def _shape(answer: Body) -> Any:
    """The comparable part of a response: voters, and whether offsets and times are consistent, as their values differ."""
    for topic in answer.get("topics") or ():
        for part in topic["partitions"]:
            watermark = part["high_watermark"]
            part["high_watermark"] = min(watermark, 1)
            part["leader_epoch"] = min(part["leader_epoch"], 1)
            for each in (*part["current_voters"], *part["observers"]):
                each["log_end_offset"] = "at the end" if each["log_end_offset"] >= watermark else "behind"
                if each.get("replica_directory_id") is not None:
                    each["replica_directory_id"] = "directory"
                for name in ("last_fetch_timestamp", "last_caught_up_timestamp"):
                    if name in each and each[name] > 0:
                        each[name] = "time"
    for node in answer.get("nodes") or ():
        node["listeners"] = len(node["listeners"])
    return answer


def describe(s: Story, v: int, note: str = "", topics: Any = None) -> None:
    asked = [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}] if topics is None else topics
    answer = s.quiet("describe_quorum", v, retry=(), topics=asked)
    s.put(f"describe_quorum v{v} {note}".strip(), s.normal.answer("describe_quorum", _shape(answer)))


@story("quorum")
def description(s: Story) -> None:
    for v in (0, 1, 2):
        describe(s, v)
    describe(s, 2, "another partition", [{"topic_name": METADATA, "partitions": [{"partition_index": 1}]}])
    describe(s, 2, "another topic", [{"topic_name": "other", "partitions": [{"partition_index": 0}]}])
    describe(s, 2, "nothing", [])


@story("quorum")
def voters(s: Story) -> None:
    """Requests that would change the voters of a static quorum."""
    listener = {"name": "CONTROLLER", "host": "localhost", "port": 9}
    body: dict[str, Any] = {"voter_id": 7, "voter_directory_id": uuid.UUID(int=7)}
    for v in (0, 1):
        more: dict[str, Any] = {"timeout": 1000, "ack_when_committed": True}
        s.ask("add_raft_voter", v, cluster_id=None, listeners=[listener], **body, **more)
        s.ask(
            "add_raft_voter",
            v,
            cluster_id="other",
            listeners=[listener],
            note="another cluster",
            **body,
            **more,
        )
        nothing: dict[str, Any] = body | {"voter_directory_id": None}
        s.ask(
            "add_raft_voter", v, cluster_id=None, listeners=[listener], note="no directory", **nothing, **more
        )
        s.ask("add_raft_voter", v, cluster_id=None, listeners=[], note="no listener", **body, **more)
    s.ask("remove_raft_voter", 0, cluster_id=None, **body)
    s.ask("remove_raft_voter", 0, cluster_id="other", note="another cluster", **body)
    s.ask("remove_raft_voter", 0, cluster_id=None, note="no directory", voter_id=7, voter_directory_id=None)


@story("quorum")
def unregistration(s: Story) -> None:
    s.ask("unregister_broker", 0, broker_id=77)
    s.ask("unregister_broker", 0, broker_id=-1)


@story("quorum")
def unregistration_of_controllers(s: Story) -> None:
    """UnregisterController refuses the active controller, and controllers that are not registered."""
    for controller_id in (1, 77, -1):
        s.ask("unregister_controller", 0, controller_id=controller_id, note=f"{controller_id}")
