"""The rules of ``StandardAuthorizer``. tests/differential/acls compares many more sets of ACLs with Apache Kafka."""

from __future__ import annotations

from random import Random

import pytest

from broker.metadata.acls import ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, RESOURCE_TYPES, Acl
from broker.security.authorizer import standard_authorizer
from broker.security.authorizer.standard_authorizer import StandardAuthorizer

CODES = {word: code for words in (OPERATIONS, RESOURCE_TYPES) for code, word in words.items()}
HOST = "127.0.0.1"


def acl(
    name: str,
    operation: str = "READ",
    *,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: int = ALLOW,
    of: str = "TOPIC",
) -> Acl:
    return Acl(CODES[of], name, pattern, principal, host, CODES[operation], permission)


def authorizer(*acls: Acl, super_users: tuple[str, ...] = (), otherwise: bool = False) -> StandardAuthorizer:
    return StandardAuthorizer(acls, frozenset(super_users), otherwise)


def may(
    asked: StandardAuthorizer,
    name: str = "orders",
    operation: str = "READ",
    *,
    principal: str = "User:alice",
    host: str = HOST,
    of: str = "TOPIC",
) -> bool:
    return asked.authorize(principal, host, operation, of, name)


@pytest.mark.parametrize(
    ("pattern", "name", "holds"),
    [
        (LITERAL, "orders", True),
        (LITERAL, "order", False),
        (LITERAL, "orders-2", False),
        (LITERAL, "*", True),
        (PREFIXED, "o", True),
        (PREFIXED, "orders", True),
        (PREFIXED, "orders-2", False),
        (PREFIXED, "*", False),
        (PREFIXED, "p", False),
    ],
)
def test_a_pattern_holds_for_names(pattern: int, name: str, holds: bool) -> None:
    assert may(authorizer(acl(name, pattern=pattern))) is holds
    everyone_else = authorizer(acl(name, pattern=pattern, permission=DENY), otherwise=True)
    assert may(everyone_else) is not holds


def test_the_wildcard_does_not_hold_for_a_longer_name_that_begins_with_it() -> None:
    asked = authorizer(acl("*", of="GROUP"))
    assert [may(asked, name, of="GROUP") for name in ("g", "*", "*g", "", "#")] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert may(authorizer(acl("*", of="GROUP", pattern=PREFIXED)), "*g", of="GROUP")


@pytest.mark.parametrize(
    ("principal", "holds"),
    [
        ("User:alice", True),
        ("User:*", True),
        ("User:bob", False),
        ("Group:alice", False),
        ("Group:*", False),
        ("User:Alice", False),
    ],
)
def test_an_acl_is_of_a_principal_or_of_every_user(principal: str, holds: bool) -> None:
    assert may(authorizer(acl("orders", principal=principal))) is holds


def test_a_principal_may_be_of_any_type() -> None:
    asked = authorizer(acl("orders", principal="Group:CN=a,O=b:c"), acl("*", principal="User:*"))
    assert may(asked, principal="Group:CN=a,O=b:c")
    assert may(asked, "other", principal="Group:x"), "User:* matches every principal"


@pytest.mark.parametrize(("host", "holds"), [("*", True), (HOST, True), ("127.0.0.2", False), ("", False)])
def test_an_acl_is_of_a_host_or_of_all(host: str, holds: bool) -> None:
    assert may(authorizer(acl("orders", host=host))) is holds


@pytest.mark.parametrize(
    ("host", "holds"),
    [("127.0.0.9/24", True), ("127.0.1.0/24", False), ("::/0", False), ("no/address", False)],
)
def test_an_acl_is_of_a_network(host: str, holds: bool) -> None:
    """KIP-1276. An earlier metadata.version accepts a host with a slash that is no network."""
    assert may(authorizer(acl("orders", host=host))) is holds
    assert may(authorizer(acl("orders", host=host, permission=DENY), acl("*"))) is not holds
    assert (
        authorizer(acl("orders", host=host)).authorize_by_resource_type("User:alice", HOST, "READ", "TOPIC")
        is holds
    )


IMPLIED = {
    "READ": {"DESCRIBE"},
    "WRITE": {"DESCRIBE"},
    "DELETE": {"DESCRIBE"},
    "ALTER": {"DESCRIBE"},
    "ALTER_CONFIGS": {"DESCRIBE_CONFIGS"},
    "ALL": set(OPERATIONS.values()),
}


@pytest.mark.parametrize("operation", OPERATIONS.values())
def test_what_an_operation_implies_is_allowed_and_not_denied(operation: str) -> None:
    allowing = authorizer(acl("orders", operation))
    denying = authorizer(acl("orders", operation, permission=DENY), acl("*", "ALL"))
    implied = {operation} | IMPLIED.get(operation, set())
    assert {word for word in OPERATIONS.values() if may(allowing, operation=word)} == implied
    denied = {word for word in OPERATIONS.values() if not may(denying, operation=word)}
    assert denied == (set(OPERATIONS.values()) if operation == "ALL" else {operation})


@pytest.mark.parametrize(
    ("denied", "allowed"),
    [
        (acl("*", permission=DENY), acl("orders")),
        (acl("orders", permission=DENY), acl("*", "ALL")),
        (acl("o", pattern=PREFIXED, permission=DENY), acl("orders")),
        (acl("orders", principal="User:*", permission=DENY), acl("orders")),
        (acl("orders", host=HOST, permission=DENY), acl("orders")),
        (acl("orders", permission=DENY), acl("orders")),
    ],
)
def test_a_deny_acl_wins(denied: Acl, allowed: Acl) -> None:
    assert may(authorizer(allowed))
    assert not may(authorizer(allowed, denied))
    assert not may(authorizer(denied, allowed))


def test_without_an_acl_for_a_resource_the_setting_decides() -> None:
    others = (acl("orders", principal="User:bob"), acl("p", pattern=PREFIXED, principal="User:bob"))
    for otherwise in (False, True):
        asked = authorizer(*others, otherwise=otherwise)
        assert may(asked, "order") is otherwise
        assert may(asked, of="GROUP") is otherwise
        assert not may(asked), (
            "an ACL of another principal also ends allow.everyone.if.no.acl.found for the resource"
        )
        assert not may(asked, "payments")


def test_a_super_user_may_do_everything() -> None:
    asked = authorizer(acl("*", "ALL", permission=DENY), super_users=("User:alice", "User:CN=x,O=y"))
    assert may(asked)
    assert may(asked, principal="User:CN=x,O=y")
    assert not may(asked, principal="User:alic")
    assert asked.authorize_by_resource_type("User:alice", HOST, "WRITE", "TOPIC")


# -- any resource of a type (KIP-679) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("a", "WRITE")], True),
        ([acl("a", "ALL")], True),
        ([acl("a", "WRITE", pattern=PREFIXED)], True),
        ([acl("*", "WRITE")], True),
        ([acl("a", "READ")], False),
        ([acl("a", "WRITE", of="GROUP")], False),
        ([acl("a", "WRITE", principal="User:*")], True),
        ([acl("a", "WRITE", principal="User:bob")], False),
        ([acl("a", "WRITE", host="h")], False),
        ([acl("a", "WRITE"), acl("*", "WRITE", permission=DENY)], False),
        ([acl("a", "WRITE"), acl("*", "ALL", permission=DENY)], False),
        ([acl("a", "WRITE"), acl("*", "READ", permission=DENY)], True),
        ([acl("a", "WRITE"), acl("a", "WRITE", permission=DENY)], False),
        ([acl("a", "WRITE", pattern=PREFIXED), acl("a", "WRITE", permission=DENY)], True),
        ([acl("ab", "WRITE"), acl("a", "WRITE", pattern=PREFIXED, permission=DENY)], False),
        ([acl("a", "WRITE"), acl("ab", "WRITE", pattern=PREFIXED, permission=DENY)], True),
        ([acl("ab", "WRITE", pattern=PREFIXED), acl("ab", "ALL", pattern=PREFIXED, permission=DENY)], False),
        (
            [acl("a", "WRITE", permission=DENY), acl("a", "WRITE"), acl("b", "WRITE")],
            True,
        ),
        ([acl("*", "WRITE"), acl("h", "WRITE", pattern=PREFIXED, permission=DENY)], True),
        ([acl("*", "WRITE"), acl("*", "WRITE", permission=DENY)], False),
        ([acl("*", "WRITE", pattern=PREFIXED)], True),
        ([acl("*", "WRITE", pattern=PREFIXED, permission=DENY), acl("a", "WRITE")], True),
    ],
)
def test_any_resource_of_a_type(acls: list[Acl], allowed: bool) -> None:
    assert authorizer(*acls).authorize_by_resource_type("User:alice", HOST, "WRITE", "TOPIC") is allowed


def test_an_implied_operation_counts_for_a_resource_and_not_for_the_type() -> None:
    asked = authorizer(acl("a", "READ"))
    assert may(asked, "a", "DESCRIBE")
    assert not asked.authorize_by_resource_type("User:alice", HOST, "DESCRIBE", "TOPIC")


def test_where_everyone_may_use_a_resource_without_acls_any_will_do() -> None:
    otherwise = authorizer(acl("a", "WRITE", permission=DENY), otherwise=True)
    assert otherwise.authorize_by_resource_type("User:alice", HOST, "WRITE", "TOPIC")


# -- changes ------------------------------------------------------------------------------------------------------


def test_after_each_change_the_answers_are_those_of_a_new_authorizer() -> None:
    random = Random(7)
    names = ["", "a", "ab", "abc", "b", "*"]
    pool = [
        acl(name, operation, pattern=pattern, principal=principal, permission=permission)
        for name in names[1:]
        for operation in ("READ", "ALL")
        for pattern in (LITERAL, PREFIXED)
        for principal in ("User:alice", "User:*")
        for permission in (ALLOW, DENY)
    ]
    followed, there = authorizer(), set[Acl]()
    for _ in range(200):
        removed = {each for each in there if random.random() < 0.3}
        there -= removed
        # A removed ACL may be added again in the same change.
        added = {each for each in random.sample(pool, 6) if each not in there}
        there |= added
        followed.on_acls_changed(removed, added)
        fresh = authorizer(*there)
        for name in [*names, "abcd"]:
            for operation in ("READ", "DESCRIBE", "WRITE"):
                assert may(followed, name, operation) == may(fresh, name, operation), (there, name, operation)
    followed.on_acls_changed(there, ())
    assert not any(followed._index.values()), "the index is empty"


def test_a_client_that_makes_up_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_authorizer, "_CACHED_MAX", 10)
    asked = authorizer(acl("g", of="GROUP", pattern=PREFIXED))
    for number in range(100):
        assert may(asked, f"g{number}", of="GROUP")
        assert may(asked, "g" * 300, of="GROUP")
        assert len(asked._cache) <= 10
    assert max(len(key[-1]) for key in asked._cache) < 300
