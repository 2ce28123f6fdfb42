"""Random sets of ACLs, with questions about each: the rights of a principal, and the ACLs that filters find and delete.

A case depends only on its number. Kafka's responses are recorded in ``recorded.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

RECORDED = Path(__file__).with_name("recorded.jsonl")
CASES = 300

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
DENY, ALLOW = 2, 3
OPERATIONS = {
    TOPIC: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (2, 3, 6, 8, 10, 11),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (2, 4, 8),
}
# Patterns of a few letters, so that many of them match the names in the questions.
TOPICS = ("a", "ab", "abc", "abd", "b", "hardcode")
NAMES = {
    TOPIC: TOPICS,
    # Not for topics: a topic name cannot contain an asterisk.
    GROUP: ("a", "ab", "abc", "b", "*", "*a"),
    TRANSACTIONAL_ID: ("a", "ab", "b", "*a"),
}
PATTERNS = ("a", "ab", "abc", "abcd", "b", "*", "ha")
PRINCIPALS = ("User:alice", "User:alice", "User:alice", "User:bob", "User:*", "User:*", "Group:alice")
HOSTS = ("127.0.0.1", "127.0.0.2")
ASKERS = {
    f"{user}@{host}": (user, host)
    for user, host in (("alice", HOSTS[0]), ("alice", HOSTS[1]), ("bob", HOSTS[0]))
}
CLUSTER_NAME = "kafka-cluster"

Rule = tuple[int, str, int, str, str, int, int]
"""An ACL: resource type, name and pattern, principal, host, operation, permission."""
Wanted = tuple[int, str | None, int, str | None, str | None, int, int]
"""A filter of ACLs, with the fields of ``Rule``."""


class Case(NamedTuple):
    acls: tuple[Rule, ...]
    filters: tuple[Wanted, ...]


def case(number: int) -> Case:
    random = Random(number)
    if number % 3 == 0:
        acls = tuple(_of_writing(random) for _ in range(random.choice((2, 3, 4))))
        return Case(acls, tuple(_wanted(random, acls) for _ in range(3)))
    broad = [_broad(random, resource_type) for resource_type in OPERATIONS if random.random() < 0.5]
    acls = (*broad, *(_rule(random) for _ in range(random.choice((1, 2, 3, 5, 8, 13)))))
    return Case(acls, tuple(_wanted(random, acls) for _ in range(3)))


def _of_writing(random: Random) -> Rule:
    """An ACL on one of a few similar topic names, for InitProducerId, which checks whether the principal may write
    to any topic."""
    pattern = random.choice(
        (("a", LITERAL), ("a", PREFIXED), ("ab", LITERAL), ("ab", PREFIXED), ("*", LITERAL))
    )
    principal = random.choice(("User:alice", "User:*"))
    return (
        TOPIC,
        *pattern,
        principal,
        random.choice(("*", HOSTS[0])),
        random.choice((2, 4)),
        random.choice((DENY, ALLOW)),
    )


def _broad(random: Random, resource_type: int) -> Rule:
    """A broad ALLOW rule, so that DENY rules have an effect."""
    pattern: tuple[str, int] = random.choice((("*", LITERAL), ("a", PREFIXED), ("ab", PREFIXED)))
    if resource_type == CLUSTER:
        pattern = CLUSTER_NAME, LITERAL
    return (
        resource_type,
        *pattern,
        random.choice(("User:alice", "User:*")),
        "*",
        random.choice((2, 2, 3, 8)),
        ALLOW,
    )


def _rule(random: Random) -> Rule:
    resource_type = random.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, TRANSACTIONAL_ID))
    is_of_cluster = resource_type == CLUSTER
    return (
        resource_type,
        CLUSTER_NAME if is_of_cluster else random.choice(PATTERNS),
        LITERAL if is_of_cluster else random.choice((LITERAL, PREFIXED)),
        random.choice(PRINCIPALS),
        random.choice(("*", "*", "*", *HOSTS)),
        random.choice(OPERATIONS[resource_type]),
        random.choice((ALLOW, DENY)),
    )


def _wanted(random: Random, acls: Sequence[Rule]) -> Wanted:
    """A filter that has some fields of an existing or random ACL. Its other fields match anything."""
    rule = random.choice((*acls, _rule(random)))
    fields: list[Any] = [
        value if random.random() < 0.4 else otherwise
        for value, otherwise in zip(rule, (ANY, None, ANY, None, None, ANY, ANY), strict=True)
    ]
    if random.random() < 0.4:
        fields[1:3] = random.choice((*PATTERNS, CLUSTER_NAME)), MATCH
    return tuple(fields)


def creation(rule: Rule) -> dict[str, Any]:
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation")
    return dict(zip((*names, "permission_type"), rule, strict=True))


def filter_body(wanted: Wanted) -> dict[str, Any]:
    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter")
    return dict(zip((*names, "host_filter", "operation", "permission_type"), wanted, strict=True))


Answers = dict[str, Any]
"""The parts of one broker's responses that are compared, by name: for a whole case, or for one client of it."""


def in_order(rules: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rules in a fixed order. Kafka returns ACLs in the order of a hash map."""
    return sorted(map(list, rules))


def save(answers: Sequence[Answers]) -> None:
    RECORDED.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in answers))


def recorded() -> list[Answers]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]
