"""Fault rules that may have refused or lost a write for a share partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import Final

from lab.explain.facts import ClusterContext, FaultRule, GroupFacts, PartitionFacts
from lab.explain.words import capital, rule_text, times

WRITTEN_AT: Final = ("share.append", "share.archive", "share.dlq", "share.write", "WriteShareGroupState")
"""Injection points and APIs at which a rule can refuse a state, or a dead letter."""


def refused_writes(
    at: GroupFacts, place: PartitionFacts, around: ClusterContext, where: Collection[str] = WRITTEN_AT
) -> Iterator[str]:
    """Sentences that name the rules that may have refused or lost a write for a share partition."""
    for each in refusing_rules(around, at.group, place.name, where):
        rule = capital(rule_text(around, each.rule))
        yield f"{rule} has hit {times(each.hits)}, and may have refused the state of {place.name} in group {at.group}."
        if not each.spent:
            yield f"Remove the rule: odradek fault clear {each.rule}"


def refusing_rules(
    around: ClusterContext, group: str, partition: str, where: Collection[str] = WRITTEN_AT
) -> Iterator[FaultRule]:
    """The rules with hits that may have refused or lost a step of a share partition (``orders-0``) at one of ``where``."""
    topic, _, index = partition.rpartition("-")
    for each in around.rules or ():
        point, named, action = each.parts
        if (
            each.hits
            and point in where
            and action.startswith(("error", "lose"))
            and fnmatchcase(group, named.get("group", "*"))
            and fnmatchcase(topic, named.get("topic", "*"))
            and named.get("partition", index) == index
        ):
            yield each
