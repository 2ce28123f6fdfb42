"""Why a group lags: what stands between its offsets and the ends of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import Reader
from tools.client.groups import assigned, describe_group, fetch_offsets
from tools.client.lag import lag_of
from tools.client.offsets import EARLIEST, READ_UNCOMMITTED, list_offset
from tools.explain.partitions import explain_partition

READ_MAX = 100_000
"""So many records of a partition are read to say what its lag consists of."""


def explain_group(cluster: Cluster, group: str) -> list[str]:
    """Sentences: the group's members, and for each partition that lags what it lags behind."""
    described = describe_group(cluster, group)
    found = lag_of(cluster, group)
    if not found and not described.members:
        raise ToolError(f"group {group} has no members and no committed offsets")
    sentences = [_state(group, described.group_state, len(described.members))]
    owned = {where for member in described.members for where in assigned(member.member_assignment)}
    for each in found:
        sentences += _partition(cluster, each, owned)
    unstable = set(fetch_offsets(cluster, group)) - set(fetch_offsets(cluster, group, require_stable=True))
    for topic, index in sorted(unstable):
        sentences.append(
            f"{topic}-{index}: an open transaction has an offset of this group. A member that starts now waits for its end "
            "(UNSTABLE_OFFSET_COMMIT)."
        )
    return sentences


def _state(group: str, state: str, members: int) -> str:
    if not members:
        return f"Group {group} is {state}: it has no members, so no offset moves."
    return f"Group {group} is {state} with {members} member{'s' * (members != 1)}."


def _partition(cluster: Cluster, at: dict[str, Any], owned: set[tuple[str, int]]) -> Iterator[str]:
    topic, index, committed = at["topic"], at["partition"], at["committed_offset"]
    name = f"{topic}-{index}"
    start = list_offset(cluster, topic, index, EARLIEST)
    if committed < start:
        yield (
            f"{name}: offset {committed} is deleted, the log begins at {start}. "
            "auto.offset.reset decides where a member goes on."
        )
    if at["lag"] == 0 and at["open"] == 0:
        yield f"{name}: no lag."
        return
    if owned and (topic, index) not in owned:
        yield f"{name}: no member has this partition."
    if at["lag"]:
        content = _content(cluster, at, start)
        yield f"{name}: {at['lag']} offsets behind the last stable offset {at['last_stable_offset']}: {content}."
    if at["open"]:
        more = " more" if at["lag"] else ""
        offsets = f"{at['open']}{more} offset{'s' * (at['open'] != 1)}"
        yield f"{name}: an open transaction keeps {offsets} behind the last stable offset {at['last_stable_offset']}."
        yield from (f"  {sentence}" for sentence in explain_partition(cluster, topic, index)[2:])


def _content(cluster: Cluster, at: dict[str, Any], start: int) -> str:
    """``3 records, 2 aborted records, 1 marker``"""
    reader = Reader(
        cluster, at["topic"], at["partition"], READ_UNCOMMITTED, max(start, at["committed_offset"])
    )
    counts: Counter[str] = Counter()
    while reader.offset < at["last_stable_offset"] and counts.total() < READ_MAX:
        for seen in reader.read():
            if seen.record.offset < at["last_stable_offset"]:
                counts[_kind(seen.outcome)] += 1
    parts = [
        f"{counts[kind]} {kind}{'s' * (counts[kind] != 1)}"
        for kind in ("record", "aborted record", "marker")
        if counts[kind]
    ]
    unread = " at the least" if counts.total() >= READ_MAX else ""
    return (
        ", ".join(parts) + unread
        if parts
        else "none of them a record: compaction has removed what stood there"
    )


def _kind(outcome: str) -> str:
    if outcome in ("COMMIT", "ABORT", "control"):
        return "marker"
    return "aborted record" if outcome == "aborted" else "record"
