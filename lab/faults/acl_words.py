"""Parses the actions `remove-acls` and `add-acl` into ACL filters and ACLs. Pure.

    remove-acls topic=orders operation=WRITE     the ACLs of the request's principal
    add-acl principal=User:bob topic=ord* operation=ALL permission=DENY

A resource is one word: its type in lower case, and its name. As in Kafka, the name `*` alone means all resources. A name
that ends in `*` means a prefixed pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.metadata.acls import Acl, AclFilter

AclWords = Mapping[str, str]
"""Names with values (``topic=orders``) from an action on ACLs, in the order of the rule."""

_PRINCIPAL, _HOST, _OPERATION, _PERMISSION = "principal", "host", "operation", "permission"
_OF_ENTRY: Final = (_PRINCIPAL, _HOST, _OPERATION, _PERMISSION)
_STAR: Final = "*"


class BadAcl(ValueError):
    """The words of a rule are not a valid ACL or ACL filter. The message says what would be valid."""


class Resource(NamedTuple):
    """A resource pattern, with the codes of Kafka's enums."""

    type: int
    name: str
    is_prefix: bool


def checked_words(words: AclWords, *, is_filter: bool) -> dict[str, str]:
    """Convert values to Kafka's constants. Raises ``BadAcl`` if they are no valid filter (``is_filter``) or ACL."""
    from broker.metadata import acls

    given = {name: _checked(name, value) for name, value in words.items()}
    resources = [name for name in given if name not in _OF_ENTRY]
    if len(resources) > 1:
        raise BadAcl(f"only one resource is allowed, not {' and '.join(resources)}")
    if given.get("cluster", acls.CLUSTER_NAME) != acls.CLUSTER_NAME:
        raise BadAcl(f"the cluster resource must be {acls.CLUSTER_NAME}")
    if not is_filter:
        if not resources:
            raise BadAcl(f"a resource is missing, such as topic=orders; resources: {', '.join(_types())}")
        if _OPERATION not in given:
            raise BadAcl("an operation is missing, such as operation=WRITE")
    return given


def _checked(name: str, value: str) -> str:
    from broker.metadata import acls

    if not value:
        raise BadAcl(f"{name} is empty")
    if name == _OPERATION:
        return _constant(name, value, acls.OPERATIONS)
    if name == _PERMISSION:
        return _constant(name, value, acls.PERMISSION_TYPES)
    if name == _PRINCIPAL and ":" not in value:
        raise BadAcl(f"a principal is of the form User:alice, not {value!r}")
    if name not in _OF_ENTRY and name not in _types():
        raise BadAcl(f"{name!r} is not known; known: {', '.join((*_OF_ENTRY, *_types()))}")
    return value


def _constant(name: str, value: str, constants: Mapping[int, str]) -> str:
    """The constant for a value in any spelling of Kafka's tools: `IdempotentWrite` is IDEMPOTENT_WRITE."""
    wanted = value.replace("_", "").upper()
    for constant in constants.values():
        if constant.replace("_", "") == wanted:
            return constant
    raise BadAcl(f"the {name} {value!r} is not known; known: {', '.join(constants.values())}")


def _types() -> dict[str, int]:
    from broker.metadata import acls

    return {word.lower(): code for code, word in acls.RESOURCE_TYPES.items()}


def filter_of(words: AclWords, principal: str) -> AclFilter:
    """The filter for `remove-acls`. If the rule names no principal, the filter finds the ACLs of the request's
    ``principal``.

    If the rule names a resource, the filter finds all ACLs that apply to it, also those of prefixed patterns and of all
    resources.
    """
    from broker.metadata import acls

    given, resource = words, _resource(words)
    is_pattern = resource is not None and (resource.is_prefix or resource.name == acls.WILDCARD)
    return acls.AclFilter(
        acls.ANY if resource is None else resource.type,
        None if resource is None else resource.name,
        _pattern_type(resource) if is_pattern else acls.MATCH,
        given.get(_PRINCIPAL, principal),
        given.get(_HOST),
        _code(acls.OPERATIONS, given.get(_OPERATION), acls.ANY),
        _code(acls.PERMISSION_TYPES, given.get(_PERMISSION), acls.ANY),
    )


def acl_of(words: AclWords, principal: str) -> Acl:
    """The ACL that `add-acl` creates. If the rule names no principal, the ACL is for the request's ``principal``."""
    from broker.metadata import acls

    given, resource = words, _resource(words)
    assert resource is not None, "a rule without a resource is refused"
    return acls.Acl(
        resource.type,
        resource.name,
        _pattern_type(resource),
        given.get(_PRINCIPAL, principal),
        given.get(_HOST, acls.WILDCARD),
        _code(acls.OPERATIONS, given[_OPERATION], acls.ANY),
        _code(acls.PERMISSION_TYPES, given.get(_PERMISSION), acls.ALLOW),
    )


def _resource(words: AclWords) -> Resource | None:
    types = _types()
    for name, value in words.items():
        if name in types:
            is_prefix = len(value) > 1 and value.endswith(_STAR)
            return Resource(types[name], value[:-1] if is_prefix else value, is_prefix)
    return None


def _pattern_type(resource: Resource | None) -> int:
    from broker.metadata import acls

    return acls.PREFIXED if resource is not None and resource.is_prefix else acls.LITERAL


def _code(constants: Mapping[int, str], word: str | None, unsaid: int) -> int:
    return next((code for code, constant in constants.items() if constant == word), unsaid)
