"""kafka-acls with an authorizer, whose super user is the client of the listener without SASL."""

from __future__ import annotations

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, story

SORTED = Shown(sorted=True, hidden=(r"^( ?)\t\(",))
"""Sorts lines, as kafka-acls prints sets in any order, and hides the space that it prints in front of a first ACL."""
ALICE = "--allow-principal User:alice"


@story("kafka-acls", profile="acls")
def added_listed_removed(s: ToolStory) -> None:
    topic = ("--topic", s.name("orders"))
    s.run("--list", *topic)
    s.run("--add", ALICE, "--operation Read --operation Describe", *topic, show=SORTED)
    s.run("--add --deny-principal User:bob --deny-host 10.0.0.1 --operation All", *topic, show=SORTED)
    s.run("--list", *topic, show=SORTED, until="bob")
    s.run("--add", ALICE, "--operation Read", *topic, show=SORTED)
    s.run("--list --principal User:alice", *topic, show=SORTED)
    s.run("--remove --force", ALICE, "--operation Read", *topic, show=SORTED)
    s.run("--list", *topic, show=SORTED, until_gone="operation=READ")
    s.run("--remove --force", *topic, show=SORTED)
    s.run("--list", *topic, until_gone="bob")


@story("kafka-acls", profile="acls")
def patterns(s: ToolStory) -> None:
    prefix, topic = s.name("or"), ("--topic", s.name("orders"))
    s.run("--add", ALICE, "--operation Write --resource-pattern-type prefixed --topic", prefix, show=SORTED)
    s.run("--add", ALICE, "--operation Write", *topic, show=SORTED)
    s.run(
        "--list --resource-pattern-type match",
        *topic,
        show=SORTED,
        until=r"(?s)LITERAL.*PREFIXED|PREFIXED.*LITERAL",
    )
    s.run("--list --resource-pattern-type prefixed", *topic, show=SORTED)
    s.run("--list --resource-pattern-type any --topic", prefix, show=SORTED)
    s.run("--add", ALICE, "--operation Write --resource-pattern-type match", *topic, show=SORTED)
    s.run("--remove --force --resource-pattern-type match", *topic, show=SORTED)
    s.run("--list --resource-pattern-type match", *topic, until_gone="alice")


@story("kafka-acls", profile="acls")
def of_producers_and_consumers(s: ToolStory) -> None:
    topic, group = ("--topic", s.name("orders")), ("--group", s.name("g"))
    txn = ("--transactional-id", s.name("tx"))
    s.run("--add", ALICE, "--producer --idempotent", *topic, *txn, show=SORTED)
    s.run("--list --topic", s.name("orders"), show=SORTED, until="DESCRIBE")
    s.run("--add", ALICE, "--consumer", *topic, *group, show=SORTED)
    s.run("--list", *topic, *group, *txn, "--cluster", show=SORTED, until="GROUP")
    s.run("--add", ALICE, "--operation Write", *group, show=Shown(hidden=(r"\[(.*)\]",)))
    s.run("--add", ALICE, "--operation Create --cluster", show=SORTED)
    s.run(
        "--add --allow-principal User:carol --operation DescribeTokens --user-principal User:alice",
        show=SORTED,
    )
    s.run("--add", ALICE, "--operation Describe --delegation-token", s.name("token"), show=SORTED)
    s.run("--list --cluster --user-principal User:alice", show=SORTED, until="carol")
    s.run("--remove --force", *topic, *group, *txn, "--cluster --user-principal User:alice", show=SORTED)
    s.run("--remove --force --delegation-token", s.name("token"), show=SORTED)
    s.run("--list", *topic, *group, *txn, "--cluster", until_gone="alice")
