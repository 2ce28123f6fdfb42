"""The names that calls accept, as types, so that a type checker reports misspelt ones.

Tests compare these names with the broker's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, TypedDict

Isolation = Literal["read_committed", "read_uncommitted"]
Outcome = Literal["committed", "aborted", "open"]
TransactionState = Literal[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
]
NodeState = Literal["starting", "running", "paused", "stopping", "stopped", "killed"]
Domain = Literal[
    "transactions",
    "ids",
    "retention",
    "groups",
    "credentials",
    "producers",
    "connections",
    "requests",
    "replication",
    "all",
]
"""A domain of the clock; docs/time.md describes the domains."""
Damage = Literal["flip", "tear"]
Library = Literal["librdkafka", "java", "aiokafka", "kafka-python"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Action = Literal[
    "add-acl",
    "answer",
    "crash",
    "cut",
    "delay",
    "detach",
    "drop",
    "duplicate",
    "error",
    "full-disk",
    "hold",
    "kill",
    "lose",
    "lose-answer",
    "lose-request",
    "pause",
    "remove-acls",
    "reorder",
    "slow-disk",
    "slow-link",
]
"""The action of a rule; docs/faults.md describes the actions."""


class MatchWords(TypedDict, total=False):
    """The fields that a rule matches. In their values ``*`` matches any characters."""

    version: str
    sender: Literal["client", "node"]
    client_id: str
    transactional_id: str
    topic: str
    partition: int
    group: str
    member: str
    offset: int
    acquired: int
    node: int
    connection: int
    listener: str
    peer: str
    principal: str
    mechanism: str


class WhenWords(TypedDict, total=False):
    """The keywords that select which matches are hits. A duration is "1m30s" or a timedelta."""

    after: int
    nth: int
    every: int
    times: int
    p: float
    seed: int
    expires: str | timedelta
    expires_ms: int | timedelta


class ActionWords(TypedDict, total=False):
    """The action of a rule, with its parameters."""

    do: Action
    code: str
    delay: str | timedelta
    delay_ms: int | timedelta
    silent: bool
    by: int
    nodes: tuple[int, int] | list[int]
    one_way: bool
    fields: Mapping[str, bool | int | float | str]
    acl: Mapping[str, str]


class RuleWords(MatchWords, WhenWords, ActionWords, total=False):
    """All keywords of a rule."""
