from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import odradek as package
from tests.tools.conftest import Run, invoke
from tools.client.cluster import Cluster

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def authorized() -> Iterator[str]:
    with package.Broker(settings=AUTHORIZER) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def acl(authorized: str) -> Callable[..., str]:
    def acl(*words: str, code: int = 0) -> str:
        done = invoke(authorized, "acl", *words)
        assert done.exit_code == code, done.output
        return done.stderr if code else done.stdout

    return acl


def shown(text: str) -> list[tuple[str, ...]]:
    return [
        (
            each["resource"],
            each["name"],
            each["pattern"],
            each["principal"],
            each["permission"],
            each["operation"],
        )
        for each in json.loads(text)
    ]


def test_acls_are_added_listed_and_removed(acl: Callable[..., str]) -> None:
    assert acl("list") == "no ACL matches\n"
    read = ("TOPIC", "orders", "LITERAL", "User:alice", "ALLOW", "READ")
    group = ("GROUP", "readers", "LITERAL", "User:alice", "ALLOW", "READ")
    ids = ("TRANSACTIONAL_ID", "etl-", "PREFIXED", "User:bob", "DENY", "WRITE")
    assert shown(acl("add", "alice", "-o", "read", "--topic", "orders", "--group", "readers", "--json")) == [
        read,
        group,
    ]
    acl("add", "User:bob", "-o", "WRITE", "--transactional-id", "etl-", "--prefixed", "--deny")
    acl("add", "User:bob", "-o", "ALTER", "--cluster", "--host", "10.0.0.1")
    cluster = ("CLUSTER", "kafka-cluster", "LITERAL", "User:bob", "ALLOW", "ALTER")
    assert set(shown(acl("list", "--json"))) == {read, group, ids, cluster}
    assert shown(acl("list", "alice", "--json")) == [group, read]
    assert shown(acl("list", "--transactional-id", "etl-", "--prefixed", "--json")) == [ids]
    assert "10.0.0.1" in acl("list", "--cluster")
    assert shown(acl("remove", "alice", "--dry-run", "--json")) == [group, read]
    assert shown(acl("remove", "alice", "--topic", "orders", "--json")) == [read]
    assert shown(acl("list", "alice", "--json")) == [group]
    acl("remove", "alice", "bob")
    assert acl("list") == "no ACL matches\n"


def test_incomplete_acl_commands_are_refused(
    acl: Callable[..., str], refused: Callable[..., tuple[int, str]]
) -> None:
    assert "give an --operation, and a --topic" in acl("add", "alice", "--topic", "orders", code=2)
    assert "give a principal, an operation or a resource" in acl("remove", code=2)
    assert refused("acl", "list") == (
        1,
        "Error: the ACLs: SECURITY_DISABLED: No Authorizer is configured on the broker\n",
    )


def test_users_are_added_listed_and_removed(
    run: Run, refused: Callable[..., tuple[int, str]], cluster: Cluster
) -> None:
    assert run("user", "add", "u1", "--password", "secret", "-m", "SCRAM-SHA-512") == (
        "user u1 has a password for SCRAM-SHA-512\n"
    )
    assert "SCRAM-SHA-256 and SCRAM-SHA-512" in run(
        "user", "add", "u2", "--iterations", "5000", input="secret\n"
    )
    assert {"user": "u2", "mechanisms": {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000}} in json.loads(
        run("user", "list", "--json")
    )
    run("user", "remove", "u2", "-m", "SCRAM-SHA-256")
    assert [line.split() for line in run("user", "list").splitlines() if line.startswith("u")] == [
        ["u1", "SCRAM-SHA-512", "4096"],
        ["u2", "SCRAM-SHA-512", "5000"],
    ]
    run("user", "remove", "u1")
    run("user", "remove", "u2")
    assert refused("user", "remove", "u1") == (1, "Error: there is no user u1\n")
    assert refused("user", "add", "u3", "--password", "")[0] == 2
    assert (
        "UNACCEPTABLE_CREDENTIAL" in refused("user", "add", "u3", "--password", "x", "--iterations", "1")[1]
    )
