"""The fields of a rule, declared once for the text form (`lab.faults.text`), the JSON form and the OpenAPI document.

A field is both a word of the text form and a key of the JSON form. A duration has two keys, one as text and one in
milliseconds. A `lab.faults.rules.Rule` stores milliseconds. Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

NAME_CHARACTERS_MAX: Final = 1024
FIELDS_MAX: Final = 32
NUMBER_MAX: Final = 2**53 - 1
"""Largest integer that JSON libraries of every language can represent exactly."""
MS: Final = "_ms"

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, frozen=True):
    """Base of the parts of a rule. A field that is not given is None."""


class Match(Part, frozen=True):
    """The conditions that a request or step must match. A field that is left out matches everything. In names * matches any
    characters.
    """

    version: Annotated[Name | None, Meta(description="3, 3..5, or 3..")] = None
    sender: Annotated[Name | None, Meta(description="client, or node: another node of the cluster.")] = None
    """Who sends the request: some APIs are used both by clients and between nodes."""
    client_id: Name | None = None
    transactional_id: Name | None = None
    topic: Name | None = None
    partition: Number | None = None
    """Index of a partition (of a topic that matches ``topic``). A request matches if one of its partitions does."""
    group: Name | None = None
    member: Annotated[Name | None, Meta(description="The member id in requests of members of a group.")] = (
        None
    )
    offset: Annotated[
        Number | None,
        Meta(description="An offset whose record a share group acknowledges, or whose state is written."),
    ] = None
    """A request or step matches if one of its partitions (of those that match) has a range with this offset."""
    acquired: Annotated[
        Number | None, Meta(description="For ShareFetch: an offset that the response delivers to the member.")
    ] = None
    """The rule counts responses, not requests, and acts on them."""
    node: Number | None = None
    """Id of the node that receives the request, or executes the step."""
    connection: Number | None = None
    listener: Name | None = None
    peer: Name | None = None
    """The address of the other end of the connection, without its port."""
    principal: Annotated[Name | None, Meta(description="User:alice; User:ANONYMOUS before the login.")] = None
    mechanism: Annotated[Name | None, Meta(description="For SaslHandshake and SaslAuthenticate.")] = None


class When(Part, frozen=True):
    """The conditions for a match to be a hit."""

    after: Number | None = None
    """Number of matches to skip at first. The other conditions count later matches from 1, and all must hold."""
    nth: Number | None = None
    """Only the match with this number is a hit."""
    every: Number | None = None
    """Every match whose number is a multiple of this number is a hit."""
    times: Number | None = None
    """Largest number of hits of the rule."""
    p: float | None = None
    """Probability that a match is a hit. The random numbers depend only on ``seed``."""
    seed: Number | None = None
    expires: Annotated[Name | None, Meta(description="A duration: 10s, 1m30s.")] = None
    """The rule is removed after this time, in the domain ``requests`` of the clock."""
    expires_ms: Annotated[Number | None, Meta(description="The duration in milliseconds.")] = None


class Action(Part, frozen=True, kw_only=False):
    """The action that a fault rule takes at each hit, with its parameters."""

    do: Name
    """Name of the action, a key of `lab.faults.rules.ACTIONS`. Each action has parameters of its own."""
    code: Name | None = None
    delay: Annotated[Name | None, Meta(description="A duration: 1.5s, 200ms.")] = None
    delay_ms: Annotated[Number | None, Meta(description="The duration in milliseconds.")] = None
    silent: bool | None = None
    by: Number | None = None
    """reorder: how many later matches are handled before the request; the default is 1."""
    nodes: Annotated[list[Number], Meta(max_length=2)] | None = None
    one_way: bool | None = None
    """cut, slow-link: affect only what the first node sends to the second."""
    fields: (
        Annotated[
            dict[Name, bool | int | float | Name],
            Meta(max_length=FIELDS_MAX, description="For answer: fields of the response with their values."),
        ]
        | None
    ) = None
    acl: (
        Annotated[
            dict[Name, Name],
            Meta(
                max_length=FIELDS_MAX,
                description="For add-acl and remove-acls: principal, host, operation, permission, and a resource, "
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
    _part.__name__ = f"{_part.__name__}Form"  # the name in the OpenAPI document
