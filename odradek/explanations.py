"""Why readers stop, a group lags or a transaction does not end, as the broker explains it."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.control_client import ControlClient
from odradek.errors import HIDDEN_IN_TRACEBACKS, ControlRefused

__tracebackhide__ = HIDDEN_IN_TRACEBACKS


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one partition, group or transactional id; ``str()`` is its lines."""

    subject: str
    """``orders-0``, ``group readers``, ``transactional id etl-1``"""
    cause: str
    """By its name, such as "marker-held"; "nothing" if nothing is wrong. docs/troubleshooting.md lists them."""
    lines: tuple[str, ...]
    """Sentences: the first says the cause, with the rule or the node that makes it."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


def explanations(
    client: ControlClient,
    topic: str | None = None,
    partition: int | None = None,
    *,
    group: str | None = None,
    transactional_id: str | None = None,
) -> list[Explanation]:
    """Those of a topic's partitions, of a group or an id; without any, of what is wrong anywhere. ``NotFound``"""
    query = {"topic": topic, "partition": partition, "group": group, "transactional_id": transactional_id}
    found = client.get("/v1/explain", query)["explanations"]
    return [Explanation(each["subject"], each["cause"], tuple(each["lines"])) for each in found]


def causes(
    client: ControlClient,
    topic: str | None = None,
    partition: int | None = None,
    *,
    transactional_id: str | None = None,
) -> list[str]:
    """What is wrong with a partition or an id, as lines below another one; none if nothing is, or if it cannot be asked."""
    try:
        found = explanations(client, topic, partition, transactional_id=transactional_id)
    except ControlRefused:  # of a broker that explains nothing; the line above is said all the same
        return []
    return [f"  {each.lines[0]}" for each in found if each.cause != "nothing"]
