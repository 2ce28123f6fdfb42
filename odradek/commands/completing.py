"""Values for completion by Tab: topics, groups, transactional ids, rules, nodes and words of rules.

Names come from the control port; `tools.commands.completing` gets them from any Kafka. If there is no response within a
short time, there are no completions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

import click
from click.shell_completion import CompletionItem

from odradek.errors import OdradekError
from odradek.remote import connect
from odradek.words import Domain, MatchWords, TransactionState, WhenWords

LOOK_S: Final = 0.5
"""Timeout of the query for names, in seconds."""
APIS: Final = (
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "AddRaftVoter",
    "AlterClientQuotas",
    "AlterConfigs",
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "AlterShareGroupOffsets",
    "AlterUserScramCredentials",
    "ApiVersions",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateAcls",
    "CreateDelegationToken",
    "CreatePartitions",
    "CreateTopics",
    "DeleteAcls",
    "DeleteGroups",
    "DeleteRecords",
    "DeleteShareGroupOffsets",
    "DeleteShareGroupState",
    "DeleteTopics",
    "DescribeAcls",
    "DescribeClientQuotas",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeDelegationToken",
    "DescribeGroups",
    "DescribeLogDirs",
    "DescribeProducers",
    "DescribeQuorum",
    "DescribeShareGroupOffsets",
    "DescribeTopicPartitions",
    "DescribeTransactions",
    "DescribeUserScramCredentials",
    "ElectLeaders",
    "EndTxn",
    "ExpireDelegationToken",
    "Fetch",
    "FindCoordinator",
    "GetTelemetrySubscriptions",
    "Heartbeat",
    "IncrementalAlterConfigs",
    "InitProducerId",
    "InitializeShareGroupState",
    "JoinGroup",
    "LeaveGroup",
    "ListConfigResources",
    "ListGroups",
    "ListOffsets",
    "ListPartitionReassignments",
    "ListTransactions",
    "Metadata",
    "OffsetCommit",
    "OffsetDelete",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
    "PushTelemetry",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "RemoveRaftVoter",
    "RenewDelegationToken",
    "SaslAuthenticate",
    "SaslHandshake",
    "ShareAcknowledge",
    "ShareFetch",
    "ShareGroupDescribe",
    "ShareGroupHeartbeat",
    "SyncGroup",
    "TxnOffsetCommit",
    "UnregisterBroker",
    "UnregisterController",
    "UpdateFeatures",
    "WriteShareGroupState",
    "WriteTxnMarkers",
)
"""APIs that a broker serves."""
POINTS: Final = (
    "coordinator.load",
    "group.append",
    "log.fsync",
    "log.write",
    "replica.append",
    "share.append",
    "share.archive",
    "share.dlq",
    "share.expire",
    "share.write",
    "txn.complete.append",
    "txn.marker",
    "txn.prepare.append",
)
"""Points inside the broker at which a rule can act."""
OUTCOMES: Final = ("answered", "unanswered", "answer_lost", "connection_gone", "held", "in_progress")

Look = Callable[[click.Context, str], Iterable[str]]
"""Function that returns the known names of a kind.

The kinds are topic, place (a topic or one of its partitions), group, id, rule, node and snapshot.
"""

_KINDS: Final = {
    "topic": "topic",
    "topics": "place",
    "where": "place",
    "partition": "place",
    "group": "group",
    "groups": "group",
    "transactional_id": "id",
    "transactional_ids": "id",
    "rule_id": "rule",
    "to_id": "rule",
    "node_id": "node",
    "node": "node",
    "to_node": "node",
    "snapshot_id": "snapshot",
    "api": "api",
    "rule": "words of a rule",
    "only": "domain",
    "outcome": "outcome",
    "states": "state",
}
_NAMES: Final = {"topic": "topic", "group": "group"}
"""Commands whose subcommands have an argument NAME, and the kind of that name."""
_WORDS: Final = {
    "api": APIS,
    "domain": get_args(Domain),
    "outcome": OUTCOMES,
    "state": get_args(TransactionState),
}


class _Known(click.ParamType):  # type: ignore[type-arg]  # generic in click's stubs only
    """A parameter type with completions of known names. Parsing is left to the parameter's own type."""

    def __init__(self, own: click.ParamType[Any], kind: str, look: Look) -> None:
        self._own, self._kind, self._look = own, kind, look
        self.name = own.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._own.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if self._kind == "words of a rule":
            found: Iterable[str] = words_of_a_rule(ctx.params.get("rule") or ())
        else:
            found = _WORDS.get(self._kind) or self._look(ctx, self._kind)
        if self._kind == "place" and "/" not in incomplete:
            # Offer partitions only after a slash.
            found = [each for each in found if "/" not in each]
        return [CompletionItem(each) for each in sorted(set(found)) if each.startswith(incomplete)]


def attach(command: click.Command, name: str, look: Look) -> None:
    """Add completions to the parameters of a command and of its subcommands.

    ``name`` is the name of the command. ``look`` returns the values to complete, such as the names of topics.
    """
    if isinstance(command, click.Group):
        for below in command.commands.values():
            for each in below.params:
                if each.name in ("name", "names") and name in _NAMES and below.name != "create":
                    each.type = _Known(each.type, _NAMES[name], look)
            attach(below, below.name or "", look)
        return
    for each in command.params:
        kind = _KINDS.get(each.name or "")
        is_number = each.name == "partition" and isinstance(each.type, click.types.IntParamType)
        is_offset = each.name == "where" and "--to" in each.opts
        if kind is not None and not is_number and not is_offset:
            each.type = _Known(each.type, kind, look)


def words_of_a_rule(before: Iterable[str]) -> list[str]:
    """The words that may follow the words ``before`` in a rule.

    The words are an API, a point, or a rule on links and disks at the start, and matchers and conditions after that.
    """
    if not list(before):
        return [*APIS, *POINTS, "cut", "slow-link", "slow-disk", "full-disk"]
    return [
        f"{name}="
        for name in (*MatchWords.__annotations__, *WhenWords.__annotations__)
        if name != "expires_ms"
    ]


def from_control_port(ctx: click.Context, kind: str) -> list[str]:
    """The names of this kind in the broker at --control or ODRADEK_CONTROL; empty if it does not respond."""
    try:
        client = connect(ctx.params.get("control"), ctx.params.get("token")).client
        path, pick = _ROUTES[kind]
        return pick(client.get(path, timeout_s=LOOK_S))
    except OdradekError:
        return []


def places(topics: Iterable[tuple[str, int]]) -> list[str]:
    """Topics and their partitions, such as ``orders``, ``orders/0``, ``orders/1``, from (topic, partition count)."""
    return [
        place for topic, count in topics for place in (topic, *(f"{topic}/{index}" for index in range(count)))
    ]


def _topics(view: Any) -> list[tuple[str, int]]:
    return [
        (each["name"], len(each["partitions"]))
        for each in view["topics"]
        if not each["name"].startswith("__")
    ]


_ROUTES: Final[dict[str, tuple[str, Callable[[Any], list[str]]]]] = {
    "topic": ("/v1/topics", lambda view: [name for name, _ in _topics(view)]),
    "place": ("/v1/topics", lambda view: places(_topics(view))),
    "group": ("/v1/views/groups", lambda view: [each["group"] for each in view["groups"]]),
    "id": (
        "/v1/transactions",
        lambda view: [each["transactional_id"] for each in view["transactions"]],
    ),
    "rule": ("/v1/faults", lambda view: [str(each["id"]) for each in view["faults"]]),
    "node": ("/v1/cluster", lambda view: [str(each["node_id"]) for each in view["nodes"]]),
    "snapshot": ("/v1/snapshots", lambda view: [str(each["id"]) for each in view["snapshots"]]),
}
