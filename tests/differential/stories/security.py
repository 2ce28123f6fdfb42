"""ACLs, delegation tokens and SCRAM credentials, at a broker without an authorizer whose listener is PLAINTEXT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.differential.story import Body, Story, story

FILTER: Body = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
CREATION: Body = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@story("security")
def acls(s: Story) -> None:
    for v in (1, 2, 3):
        s.ask("describe_acls", v, **FILTER)
        s.ask("create_acls", v, creations=[CREATION, CREATION])
        s.ask("create_acls", v, creations=[], note="none")
        s.ask("delete_acls", v, filters=[FILTER, FILTER])


@story("security")
def tokens(s: Story) -> None:
    for v in (1, 2, 3):
        renewers = [{"principal_type": "User", "principal_name": "a"}]
        body: dict[str, Any] = {
            "owner_principal_type": None,
            "owner_principal_name": None,
            "renewers": renewers,
        }
        s.ask("create_delegation_token", v, max_lifetime=-1, **body)
        s.ask("describe_delegation_token", v, owners=None)
        s.ask("describe_delegation_token", v, owners=[], note="none")
    owner: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "other", "renewers": []}
    s.ask("create_delegation_token", 3, max_lifetime=-1, note="for another", **owner)
    for v in (1, 2):
        s.ask("renew_delegation_token", v, hmac=b"h", renew_period=-1)
        s.ask("expire_delegation_token", v, hmac=b"h", expiry_time_period=-1)


def upsertion(user: str, **changes: Any) -> Body:
    return {
        "name": user,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"password",
    } | changes


def alter(s: Story, note: str, deletions: Sequence[Body] = (), upsertions: Sequence[Body] = ()) -> None:
    s.ask("alter_user_scram_credentials", 0, deletions=deletions, upsertions=upsertions, note=note)


def describe(s: Story, note: str, *names: str) -> None:
    s.ask("describe_user_scram_credentials", 0, users=[{"name": name} for name in names], note=note)


@story("security")
def scram_credentials(s: Story) -> None:
    """Credentials are stored, though no listener uses them."""
    describe(s, "nobody", s.name("a"))
    alter(s, "two", upsertions=[upsertion(s.name("a")), upsertion(s.name("b"), mechanism=2, iterations=8192)])
    describe(s, "both and one that is not there", s.name("a"), s.name("b"), s.name("c"))
    describe(s, "twice", s.name("a"), s.name("a"))
    alter(s, "the other mechanism too", upsertions=[upsertion(s.name("a"), mechanism=2)])
    describe(s, "with both", s.name("a"))
    bad = (
        ("no name", {"name": ""}),
        ("unknown mechanism", {"mechanism": 7}),
        ("too few iterations", {"iterations": 4095}),
        ("too many iterations", {"iterations": 16385}),
    )
    for note, changes in bad:
        alter(s, note, upsertions=[upsertion(s.name("d"), **changes)])
    alter(s, "the same user twice", upsertions=[upsertion(s.name("e")), upsertion(s.name("e"), mechanism=2)])
    gone = {"name": s.name("a"), "mechanism": 1}
    alter(s, "deleted and set", [gone], [upsertion(s.name("a"))])
    alter(s, "deleted", [gone])
    alter(s, "deleted again", [gone])
    alter(s, "deleted twice", [{"name": s.name("b"), "mechanism": 2}, {"name": s.name("b"), "mechanism": 2}])
    alter(s, "unknown mechanism", [{"name": s.name("b"), "mechanism": 9}])
    describe(s, "what is left", s.name("a"), s.name("b"))
    alter(s, "all gone", [{"name": s.name("a"), "mechanism": 2}, {"name": s.name("b"), "mechanism": 2}])
    s.ask("describe_user_scram_credentials", 0, users=None, note="all")
