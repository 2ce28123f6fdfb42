"""ACLs: list, add and remove (KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from tools.client.cluster import Cluster
from tools.client.errors import check

RESOURCES: Final = (
    "UNKNOWN",
    "ANY",
    "TOPIC",
    "GROUP",
    "CLUSTER",
    "TRANSACTIONAL_ID",
    "DELEGATION_TOKEN",
    "USER",
)
PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS: Final = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)
PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
ANY: Final = "ANY"
CLUSTER_NAME: Final = "kafka-cluster"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An ACL with Kafka's names. As a filter, ANY and None match everything."""

    resource: str
    name: str | None
    pattern: str
    principal: str | None
    permission: str
    operation: str
    host: str | None


def list_acls(cluster: Cluster, filters: Iterable[Acl]) -> list[Acl]:
    """The ACLs that match one of the filters."""
    found: set[Acl] = set()
    for each in filters:
        response = cluster.ask("describe_acls", DescribeAclsRequest(**_filter(each)))
        check(response.error_code, "the ACLs", response.error_message)
        found |= {
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
            for resource in response.resources
            for acl in resource.acls
        }
    return sorted(found)


def add_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Add ACLs. An ACL that already exists is not an error."""
    creations = [
        AclCreation(
            resource_type=RESOURCES.index(each.resource),
            resource_name=each.name or "",
            resource_pattern_type=PATTERNS.index(each.pattern),
            principal=each.principal or "",
            host=each.host or "",
            operation=OPERATIONS.index(each.operation),
            permission_type=PERMISSIONS.index(each.permission),
        )
        for each in acls
    ]
    response = cluster.ask_controller("create_acls", CreateAclsRequest(creations=creations))
    for acl, result in zip(acls, response.results, strict=True):
        check(result.error_code, f"{acl.operation} on {acl.resource} {acl.name}", result.error_message)


def remove_acls(cluster: Cluster, filters: Iterable[Acl]) -> list[Acl]:
    """Delete the ACLs that match one of the filters. Returns the deleted ACLs."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(each)) for each in filters])
    removed: set[Acl] = set()
    for result in cluster.ask_controller("delete_acls", request).filter_results:
        check(result.error_code, "the ACLs", result.error_message)
        for each in result.matching_acls:
            acl = _acl(each.resource_type, each.resource_name, each.pattern_type, each)
            check(each.error_code, f"{acl.operation} on {acl.resource} {acl.name}", each.error_message)
            removed.add(acl)
    return sorted(removed)


def _filter(each: Acl) -> dict[str, Any]:
    return {
        "resource_type_filter": RESOURCES.index(each.resource),
        "resource_name_filter": each.name,
        "pattern_type_filter": PATTERNS.index(each.pattern),
        "principal_filter": each.principal,
        "host_filter": each.host,
        "operation": OPERATIONS.index(each.operation),
        "permission_type": PERMISSIONS.index(each.permission),
    }


def _acl(resource: int, name: str, pattern: int, acl: Any) -> Acl:
    return Acl(
        _named(RESOURCES, resource),
        name,
        _named(PATTERNS, pattern),
        acl.principal,
        _named(PERMISSIONS, acl.permission_type),
        _named(OPERATIONS, acl.operation),
        acl.host,
    )


def _named(names: Sequence[str], number: int) -> str:
    """Kafka's name for a number; the number as text if only a newer Kafka has a name for it."""
    return names[number] if 0 <= number < len(names) else f"{number}"
