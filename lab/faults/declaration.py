"""What a rule says, declared once: text (`lab.faults.text`), JSON and the OpenAPI document follow from these structs.

A field is a word of the text form and a key of the JSON form. Where a time may be said as text or in milliseconds it has two
keys, and the rule keeps the second one (`lab.faults.rules`). Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

NAME_CHARACTERS_MAX: Final = 1024
FIELDS_MAX: Final = 32
NUMBER_MAX: Final = 2**53 - 1
"""Whole numbers that JSON readers of every language can hold."""
MS: Final = "_ms"

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, frozen=True):
    """A part of a rule. What is not said is None."""


class Match(Part, frozen=True):
    """What the rule matches; a part that is left out matches everything. In names * matches any characters."""

    version: Annotated[Name | None, Meta(description="3, 3..5, or 3..")] = None
    sender: Annotated[Name | None, Meta(description="client, or node: another node of the cluster.")] = None
    """Nodes send each other some of the requests that clients send."""
    client_id: Name | None = None
    transactional_id: Name | None = None
    topic: Name | None = None
    partition: Number | None = None
    """With ``topic``: a partition of such a topic. A request matches if one of the partitions in it does."""
    group: Name | None = None
    node: Number | None = None
    """The node that receives the request or takes the step."""
    connection: Number | None = None
    listener: Name | None = None
    peer: Name | None = None
    """The address of the other end, without its port."""
    principal: Annotated[Name | None, Meta(description="User:alice; User:ANONYMOUS before the login.")] = None
    mechanism: Annotated[Name | None, Meta(description="Of SaslHandshake and SaslAuthenticate.")] = None


class When(Part, frozen=True):
    """Which of the matches are hits."""

    after: Number | None = None
    """So many are taken off first: what is behind counts from 1 again. Then all of the others must agree."""
    nth: Number | None = None
    """This match only."""
    every: Number | None = None
    """Every n-th match."""
    times: Number | None = None
    """At most this many hits."""
    p: float | None = None
    """Each with this probability, drawn from ``seed``: the same seed, the same draws."""
    seed: Number | None = None
    expires: Annotated[Name | None, Meta(description="A duration: 10s, 1m30s.")] = None
    """The rule is removed after this time, in the domain ``requests`` of the clock."""
    expires_ms: Annotated[Number | None, Meta(description="The same in milliseconds.")] = None


class Action(Part, frozen=True, kw_only=False):
    """What happens at a hit."""

    do: Name
    """A key of `lab.faults.rules.ACTIONS`; each action has its own parameters."""
    code: Name | None = None
    delay: Annotated[Name | None, Meta(description="A duration: 1.5s, 200ms.")] = None
    delay_ms: Annotated[Number | None, Meta(description="The same in milliseconds.")] = None
    silent: bool | None = None
    by: Number | None = None
    """reorder: how many later matches go first; 1 if it is not said."""
    nodes: Annotated[list[Number], Meta(max_length=2)] | None = None
    one_way: bool | None = None
    """cut, slow-link: only what the first node would tell the second."""
    fields: (
        Annotated[
            dict[Name, bool | int | float | Name],
            Meta(max_length=FIELDS_MAX, description="Of answer: fields of the response with their values."),
        ]
        | None
    ) = None
    acl: (
        Annotated[
            dict[Name, Name],
            Meta(
                max_length=FIELDS_MAX,
                description="Of add-acl and remove-acls: principal, host, operation, permission, and a resource, "
                "such as topic.",
            ),
        ]
        | None
    ) = None


class RuleForm(Part, frozen=True):
    """A rule as JSON."""

    action: Name | Action
    on: Name | None = None
    match: Match | None = None
    when: When | None = None


for _part in (Match, When, Action):
    _part.__name__ = f"{_part.__name__}Form"  # as the OpenAPI document calls it
