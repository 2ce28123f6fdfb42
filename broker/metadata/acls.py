"""ACLs in the image: which may be created, and which a filter finds. Pure.

As Kafka's ``AclControlManager`` and ``AclsImage``, whose texts the refusals have. Numbers are the codes of Kafka's enums
``ResourceType``, ``PatternType``, ``AclOperation`` and ``AclPermissionType``; the words for them are Kafka's constants.
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
"""Of all four enums; a code that Kafka does not know is read as this one."""
ANY: Final = 1
"""Of all four; only a filter may have it."""

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
"""Of a filter: the patterns that match its name."""
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
"""Any resource, of a literal pattern; any host; any principal, as `User:*`."""
CLUSTER_NAME: Final = "kafka-cluster"


class Acl(NamedTuple):
    """One rule (``StandardAcl``): what a principal from a host may do, or not, to the resources of a pattern."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


Acls = dict[uuid.UUID, Acl]
"""By the id that the metadata log has for it; no ACL is there twice."""


class AclFilter(NamedTuple):
    """Which ACLs are looked for (``AclBindingFilter``). A None or `ANY` finds all of that field."""

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
    """What Kafka checks of an ACL before the controller sees it."""
    if acl.resource_type == CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")


def create(
    acls: Acls, wanted: Iterable[Acl], new_id: Callable[[], uuid.UUID]
) -> tuple[list[schema.MetadataRecord], list[ApiError | None]]:
    """The records of those that may be created and are not there yet, and what came of each."""
    existing = set(acls.values())
    records: list[schema.MetadataRecord] = []
    results: list[ApiError | None] = []
    for acl in wanted:
        try:
            _check(acl)
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


def delete(
    acls: Acls, filters: Iterable[AclFilter]
) -> tuple[list[schema.MetadataRecord], list[ApiError | list[Acl]]]:
    """The records that remove what the filters find, and what each finds; ACLs that two filters find are told twice.

    `ApiError` for all of it where that is too much: a client may miss that it is a part only.
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
    """All of them, for a snapshot."""
    return (_record(acl_id, acl) for acl_id, acl in acls.items())


def records_between(now: Acls, then: Acls) -> Iterable[schema.MetadataRecord]:
    """Back from what there is now to what there was then."""
    for acl_id in now.keys() - then.keys():
        yield schema.RemoveAccessControlEntryRecord(id=acl_id)
    for acl_id, acl in then.items():
        if acl_id not in now:
            yield _record(acl_id, acl)


# -- looking ------------------------------------------------------------------------------------------------------

Pattern = tuple[int, str, int]
"""(type, name, type of the pattern) of resources."""


def describe(acls: Acls, wanted: AclFilter) -> dict[Pattern, Sequence[Acl]]:
    """What a filter finds, by pattern; sorted, for Kafka's order is that of a hash map."""
    found: dict[Pattern, list[Acl]] = {}
    for acl in sorted(acl for acl in acls.values() if wanted.finds(acl)):
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return dict(found)
