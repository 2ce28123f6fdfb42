"""The partitions of share groups, for `odradek group describe` and `odradek group lag`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.explain.words import duration_text
from odradek.control_client import in_path
from odradek.errors import OdradekError
from tools.client.cluster import Cluster
from tools.client.shares import UNKNOWN, ShareOffset
from tools.commands.common import say, say_table
from tools.control import control_of

_OF_A_MEMBER = {"lock expired": "lock of {} expired", "session ended": "session of {} ended"}
_OF_NO_MEMBER = ("transaction aborted", "compacted", "below log start")
STATES = ("Available", "Acquired", "Acknowledged", "Archiving", "Archived")


def share_partitions(
    cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], ShareOffset]
) -> list[dict[str, Any]]:
    """One dict for each partition of a share group: ``start_offset`` and ``lag``, None if they are unknown.

    With the control port of this cluster also the records in flight, as the leaders have them in memory, in the form of
    ``GET /v1/groups/{group}``.
    """
    found = {
        where: {
            "topic": where[0],
            "partition": where[1],
            "start_offset": None if each.start_offset == UNKNOWN else each.start_offset,
            "lag": None if each.lag == UNKNOWN else each.lag,
        }
        for where, each in sorted(offsets.items())
    }
    remote = control_of(cluster)
    try:
        shown = {} if remote is None else remote.client.get(f"/v1/groups/{in_path(group)}")["summary"]
    except OdradekError:
        shown = {}  # an older broker, or a proxy
    found |= {(each["topic"], each["partition"]): each for each in shown.get("shares", ())}
    return list(found.values())


def say_shares(partitions: Sequence[dict[str, Any]]) -> None:
    """Print a table of the partitions; with a control port also their records in flight by state, and a table of these."""
    is_known = any("records" in each for each in partitions)
    say_table(
        ("PARTITION", "START", "LAG", *(state.upper() for state in STATES if is_known)),
        [
            (
                f"{each['topic']}-{each['partition']}",
                each["start_offset"],
                each["lag"],
                *(
                    each["records"].get(state, 0) if each["is_loaded"] else None
                    for state in STATES
                    if is_known
                ),
            )
            for each in partitions
        ],
    )
    rows = [_range(each, records) for each in partitions for records in each.get("in_flight", ())]
    if rows:
        say("")
        say_table(("RECORDS", "STATE", "MEMBER", "LOCKED FOR", "DELIVERIES", "BEFORE"), rows)


def _range(partition: Mapping[str, Any], records: Mapping[str, Any]) -> tuple[object, ...]:
    first, last = records["first_offset"], records["last_offset"]
    return (
        f"{partition['topic']}-{partition['partition']} @{first}" + f"-{last}" * (last != first),
        records["state"] + " (being written)" * records["in_transition"],
        records["member_id"],
        None if records["lock_ms"] is None else duration_text(max(0, records["lock_ms"])),
        records["delivery_count"],
        before_text(records["ending"], records["former_member_id"]),
    )


def before_text(ending: str | None, member_id: str | None) -> str | None:
    """Text of the column BEFORE: how the last acquisition ended, and whose it was; or what archived the records."""
    if not ending or not member_id or ending in _OF_NO_MEMBER:
        return ending or member_id
    return _OF_A_MEMBER.get(ending, f"{ending} by {{}}").format(member_id)
