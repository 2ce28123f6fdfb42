"""The words that calls take, as types: a type checker finds those that are misspelt.

Tests compare them with what the broker knows.
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
"""A kind of time; docs/time.md describes them."""
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
"""What happens at a hit of a rule; docs/faults.md describes them."""


class MatchWords(TypedDict, total=False):
    """What a rule matches. In names ``*`` matches any characters."""

    version: str
    sender: Literal["client", "node"]
    client_id: str
    transactional_id: str
    topic: str
    partition: int
    group: str
    node: int
    connection: int
    listener: str
    peer: str
    principal: str
    mechanism: str


class WhenWords(TypedDict, total=False):
    """Which matches of a rule are hits. A duration is "1m30s" or a timedelta."""

    after: int
    nth: int
    every: int
    times: int
    p: float
    seed: int
    expires: str | timedelta
    expires_ms: int | timedelta


class ActionWords(TypedDict, total=False):
    """What happens at a hit, and with what."""

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
    """A rule in words."""
