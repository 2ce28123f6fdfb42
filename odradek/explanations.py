"""The broker's explanations of why readers stop, a group lags or a transaction does not end."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.control_client import ControlClient
from odradek.errors import HIDDEN_IN_TRACEBACKS, ControlRefused

__tracebackhide__ = HIDDEN_IN_TRACEBACKS


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one partition, group or transactional id. ``str()`` returns its lines."""

    subject: str
    """The object that is explained: ``orders-0``, ``group readers``, ``transactional id etl-1``."""
    cause: str
    """Name of the cause, such as "marker-held"; "nothing" if there is no problem. docs/troubleshooting.md lists them."""
    lines: tuple[str, ...]
    """The sentences of the explanation. The first one states the cause, with the rule or the node that produces it."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


def explanations(
    client: ControlClient,
    topic: str | None = None,
    partition: int | None = None,
    *,
    group: str | None = None,
    transactional_id: str | None = None,
    offset: int | None = None,
) -> list[Explanation]:
    """Explain a topic's partitions, a group or a transactional id; without any of them, every problem in the cluster.

    With ``offset``: the record at this offset of the partition in the share group ``group``. Raises ``NotFound`` for an
    unknown name.
    """
    query = {
        "topic": topic,
        "partition": partition,
        "group": group,
        "transactional_id": transactional_id,
        "offset": offset,
    }
    found = client.get("/v1/explain", query)["explanations"]
    return [Explanation(each["subject"], each["cause"], tuple(each["lines"])) for each in found]


def causes(
    client: ControlClient,
    topic: str | None = None,
    partition: int | None = None,
    *,
    transactional_id: str | None = None,
) -> list[str]:
    """Problems of a partition or a transactional id, as indented lines; empty if there are none or the broker cannot
    explain.
    """
    try:
        found = explanations(client, topic, partition, transactional_id=transactional_id)
    except ControlRefused:  # the broker has no explanations; the caller's own line is sufficient
        return []
    return [f"  {each.lines[0]}" for each in found if each.cause != "nothing"]
