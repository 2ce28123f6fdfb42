"""The fields of an ACL in a rule, and the ACLs that `remove-acls` and `add-acl` make of them."""

from __future__ import annotations

import pytest

from broker.metadata.acls import ALLOW, ANY, DENY, LITERAL, PREFIXED, Acl
from lab.faults import parse_rule
from lab.faults.acl_words import acl_of, filter_of

TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
READ, WRITE = 3, 4
ALICE = "User:alice"


def acl(
    name: str = "orders",
    *,
    type: int = TOPIC,
    pattern: int = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    operation: int = WRITE,
    permission: int = ALLOW,
) -> Acl:
    return Acl(type, name, pattern, principal, host, operation, permission)


EVERY = {
    "orders": acl(),
    "read": acl(operation=READ),
    "deny": acl(permission=DENY),
    "host": acl(host="10.0.0.1"),
    "prefix": acl("ord", pattern=PREFIXED),
    "all": acl("*"),
    "other": acl("invoices"),
    "group": acl(type=GROUP),
    "bob": acl(principal="User:bob"),
    "everyone": acl(principal="User:*"),
}
OF_ALICE = {*EVERY} - {"bob", "everyone"}


@pytest.mark.parametrize(
    ("words", "removed"),
    [
        ("", OF_ALICE),
        ("topic=orders", OF_ALICE - {"other", "group"}),
        ("topic=ord*", {"prefix"}),
        ("topic=*", {"all"}),
        ("topic=payments", {"all"}),
        ("group=orders", {"group"}),
        ("topic=orders operation=READ", {"read"}),
        ("permission=DENY", {"deny"}),
        ("host=10.0.0.1", {"host"}),
        ("principal=User:bob", {"bob"}),
        ("principal=User:*", {"everyone"}),
        ("transactional_id=orders", set()),
    ],
)
def test_what_is_removed(words: str, removed: set[str]) -> None:
    rule = parse_rule(f"Produce -> remove-acls {words}")
    wanted = filter_of(rule.action.acl or {}, ALICE)
    assert {name for name, each in EVERY.items() if wanted.finds(each)} == removed


def test_a_filter_has_any_where_the_rule_says_nothing() -> None:
    assert filter_of({}, ALICE)[:1] + filter_of({}, ALICE)[5:] == (ANY, ANY, ANY)


@pytest.mark.parametrize(
    ("words", "created"),
    [
        ("topic=orders operation=WRITE", acl()),
        ("topic=ord* operation=WRITE", acl("ord", pattern=PREFIXED)),
        ("topic=* operation=WRITE", acl("*")),
        (
            "permission=DENY principal=User:bob host=10.0.0.1 operation=READ group=workers",
            acl(
                "workers",
                type=GROUP,
                principal="User:bob",
                host="10.0.0.1",
                operation=READ,
                permission=DENY,
            ),
        ),
        ("transactional_id=t operation=WRITE", acl("t", type=TRANSACTIONAL_ID)),
    ],
)
def test_what_is_created(words: str, created: Acl) -> None:
    assert acl_of(parse_rule(f"Produce -> add-acl {words}").action.acl or {}, ALICE) == created
