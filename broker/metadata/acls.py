"""ACLs in the image: checks, changes and filters. Pure.

The counterpart of Kafka's ``AclControlManager`` and ``AclsImage``, with their error messages. The numbers are the codes of
Kafka's enums ``ResourceType``, ``PatternType``, ``AclOperation`` and ``AclPermissionType``; the names are those of Kafka's
constants.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from broker.metadata.results import RECORDS_PER_REQUEST_MAX, ApiError
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records import cluster_metadata as schema

UNKNOWN: Final = 0
"""UNKNOWN in all four enums. Kafka decodes every undefined code as UNKNOWN."""
ANY: Final = 1
"""ANY in all four enums. ANY is only valid in a filter."""

CLUSTER: Final = 4
RESOURCE_TYPES: Final[Mapping[int, str]] = {
    2: "TOPIC",
    3: "GROUP",
    CLUSTER: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
MATCH: Final = 2
"""Pattern type of a filter that finds the literal and prefixed patterns that match the filter's resource name."""
LITERAL: Final = 3
PREFIXED: Final = 4
PATTERN_TYPES: Final[Mapping[int, str]] = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}
ALL: Final = 2
OPERATIONS: Final[Mapping[int, str]] = {
    ALL: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
DENY: Final = 2
ALLOW: Final = 3
PERMISSION_TYPES: Final[Mapping[int, str]] = {DENY: "DENY", ALLOW: "ALLOW"}

WILDCARD: Final = "*"
"""The wildcard: any resource as the name in a literal pattern, any host as a host, any principal in `User:*`."""
CLUSTER_NAME: Final = "kafka-cluster"


class Acl(NamedTuple):
    """One ACL (``StandardAcl``): allows or denies an operation to a principal on a host, for the resources of a pattern."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


Acls = dict[uuid.UUID, Acl]
"""ACLs by their id in the metadata log. Equal ACLs have the same id."""


class AclFilter(NamedTuple):
    """Filter for ACLs (``AclBindingFilter``). A field that is None or `ANY` matches every value."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def finds(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.pattern_type in (ANY, MATCH, acl.pattern_type)
            and (self.resource_name is None or self._finds_name(self.resource_name, acl))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _finds_name(self, name: str, acl: Acl) -> bool:
        if self.pattern_type != MATCH or acl.pattern_type != PREFIXED:
            return name == acl.resource_name or (self.pattern_type == MATCH and acl.resource_name == WILDCARD)
        return name.startswith(acl.resource_name)


# -- changes ------------------------------------------------------------------------------------------------------


def check_resource(acl: Acl) -> None:
    """Check the resource of an ACL, as Kafka does before the request reaches the controller. Raises `ApiError`."""
    if acl.resource_type == CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")


def create(
    acls: Acls, wanted: Iterable[Acl], new_id: Callable[[], uuid.UUID], *, has_cidr_hosts: bool
) -> tuple[list[schema.MetadataRecord], list[ApiError | None]]:
    """Return the records of the ACLs that are valid and new, and the result of each ACL (None or the error).

    ``has_cidr_hosts``: whether the metadata.version allows CIDR hosts.
    """
    existing = set(acls.values())
    records: list[schema.MetadataRecord] = []
    results: list[ApiError | None] = []
    for acl in wanted:
        try:
            _check(acl)
            _check_host(acl.host, has_cidr_hosts)
        except ApiError as refusal:
            results.append(refusal)
            continue
        if acl not in existing:
            existing.add(acl)
            records.append(_record(new_id(), acl))
        results.append(None)
    return records, results


def _check(acl: Acl) -> None:
    for what, code, words in (
        ("resourceType", acl.resource_type, RESOURCE_TYPES),
        ("patternType", acl.pattern_type, PATTERN_TYPES),
        ("operation", acl.operation, OPERATIONS),
        ("permissionType", acl.permission_type, PERMISSION_TYPES),
    ):
        if code not in words:
            raise _invalid(f"Invalid {what} UNKNOWN")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )


def _check_host(host: str, has_cidr_hosts: bool) -> None:
    """Raise `ApiError` for an empty host or invalid CIDR notation (KIP-1276); Kafka accepts any other host."""
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if not has_cidr_hosts:
        raise ApiError(
            ErrorCode.unsupported_version,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    from broker.metadata import cidr

    try:
        cidr.parse(host)
    except ValueError as error:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}") from None


def delete(
    acls: Acls, filters: Iterable[AclFilter]
) -> tuple[list[schema.MetadataRecord], list[ApiError | list[Acl]]]:
    """Return (records that remove the ACLs found by the filters, for each filter the ACLs that it finds or the error).

    An ACL that two filters find is in both results. Raises `ApiError` if the request would remove too many ACLs, because the
    client could not tell a partial result from a complete one.
    """
    removed: dict[uuid.UUID, schema.MetadataRecord] = {}
    results: list[ApiError | list[Acl]] = []
    for wanted in filters:
        try:
            _check_filter(wanted)
        except ApiError as refusal:
            results.append(refusal)
            continue
        found = [(acl_id, acl) for acl_id, acl in acls.items() if wanted.finds(acl)]
        removed |= {acl_id: schema.RemoveAccessControlEntryRecord(id=acl_id) for acl_id, _ in found}
        if len(removed) > RECORDS_PER_REQUEST_MAX:
            raise _invalid(
                f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation."
            )
        results.append([acl for _, acl in found])
    return list(removed.values()), results


def _check_filter(wanted: AclFilter) -> None:
    is_pattern = wanted.pattern_type in (ANY, MATCH) or wanted.pattern_type in PATTERN_TYPES
    if not is_pattern or not _is_known(wanted.resource_type, RESOURCE_TYPES):
        raise _invalid("Unknown patternFilter.")
    if not _is_known(wanted.operation, OPERATIONS) or not _is_known(wanted.permission_type, PERMISSION_TYPES):
        raise _invalid("Unknown entryFilter.")


def _is_known(code: int, words: Mapping[int, str]) -> bool:
    return code == ANY or code in words


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


# -- records ------------------------------------------------------------------------------------------------------


def acl_of(record: schema.AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def _record(acl_id: uuid.UUID, acl: Acl) -> schema.AccessControlEntryRecord:
    return schema.AccessControlEntryRecord(acl_id, *acl)


def records_of(acls: Acls) -> Iterable[schema.MetadataRecord]:
    """Return the records of all ACLs, for a snapshot."""
    return (_record(acl_id, acl) for acl_id, acl in acls.items())


def records_between(now: Acls, then: Acls) -> Iterable[schema.MetadataRecord]:
    """Return the reverse delta: the records that lead from the current ACLs to those of ``then``."""
    for acl_id in now.keys() - then.keys():
        yield schema.RemoveAccessControlEntryRecord(id=acl_id)
    for acl_id, acl in then.items():
        if acl_id not in now:
            yield _record(acl_id, acl)


# -- queries ------------------------------------------------------------------------------------------------------

Pattern = tuple[int, str, int]
"""(resource type, resource name, pattern type)."""


def describe(acls: Acls, wanted: AclFilter) -> dict[Pattern, Sequence[Acl]]:
    """Return the ACLs that a filter finds, by pattern. They are sorted, because Kafka's order is that of a hash map."""
    found: dict[Pattern, list[Acl]] = {}
    for acl in sorted(acl for acl in acls.values() if wanted.finds(acl)):
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return dict(found)
