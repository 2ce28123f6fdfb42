"""Kafka's ``StandardAuthorizer``: authorization by the ACLs in the metadata log. Pure.

An ACL that denies takes precedence over ACLs that allow. For a resource without any ACL,
``allow.everyone.if.no.acl.found`` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from broker.metadata.acls import OPERATIONS, RESOURCE_TYPES, WILDCARD, Acl
from broker.metadata.listeners import MetadataListener
from broker.security.authorizer.acl_index import ALL, AclIndex, Entries, Entry

WILDCARD_PRINCIPAL: Final = "User:*"
_ANY_NAME: Final = "hardcode"
"""The resource name that Kafka checks first to decide whether a principal may access any resource of a type."""

_CACHED_MAX: Final = 10_000
_CACHED_NAME_LENGTH_MAX: Final = 249
"""Maximum length of a resource name whose decisions are cached.

No topic name is longer. Without a limit, clients could fill the memory with long group names.
"""

_IMPLIED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}
_ALLOWED_BY: Final[Mapping[str, frozenset[str]]] = {
    word: frozenset({ALL, word, *_IMPLIED_BY.get(word, ())}) for word in OPERATIONS.values()
}
"""Requested operation -> the operations of ALLOW entries that permit it. A DENY implies no other operation."""


class StandardAuthorizer(MetadataListener):
    """Authorizes by the ACLs of one metadata image. Once subscribed as a listener, it follows changes of the ACLs."""

    def __init__(
        self, acls: Collection[Acl], super_users: frozenset[str], allow_everyone_if_no_acl_found: bool
    ) -> None:
        """``acls`` are the current ACLs."""
        self._super_users = super_users
        self._if_no_acl_found = allow_everyone_if_no_acl_found
        self._index = {word: AclIndex() for word in RESOURCE_TYPES.values()}
        self._cache: dict[tuple[str, str, str, str, str], bool] = {}
        """Cached decisions, valid until the next change of the ACLs."""
        self.on_acls_changed((), acls)

    def on_acls_changed(self, removed: Collection[Acl], added: Collection[Acl]) -> None:
        self._cache.clear()
        for acl in removed:
            if acl.resource_type in RESOURCE_TYPES:
                self._index[RESOURCE_TYPES[acl.resource_type]].remove(acl)
        for acl in added:
            if acl.resource_type in RESOURCE_TYPES:
                self._index[RESOURCE_TYPES[acl.resource_type]].add(acl)

    def authorize(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """Whether ``principal`` (`User:alice`) may do the operation on the resource from ``host`` (`127.0.0.1`)."""
        if principal in self._super_users:
            return True
        key = (principal, host, operation, resource_type, name)
        answer = self._cache.get(key)
        if answer is None:
            answer = self._decide(*key)
            if len(name) <= _CACHED_NAME_LENGTH_MAX:
                if len(self._cache) >= _CACHED_MAX:
                    self._cache.clear()
                self._cache[key] = answer
        return answer

    def _decide(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        is_found = is_allowed = False
        allowing = _ALLOWED_BY[operation]
        for entries in self._index[resource_type].matching(name):
            is_found = True
            for entry in _of(entries, principal, host):
                if not entry.is_deny:
                    is_allowed = is_allowed or entry.operation in allowing
                elif entry.has(operation):
                    return False
        return is_allowed or (self._if_no_acl_found and not is_found)

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: str, resource_type: str
    ) -> bool:
        """Whether the principal may do the operation on any resource of the type (KIP-679).

        Here, ACLs for named resources and prefixes count only if they are for this operation or ALL: READ does not
        imply DESCRIBE.
        """
        if self.authorize(principal, host, operation, resource_type, _ANY_NAME):
            return True
        index = self._index[resource_type]
        denied, allowed = _names(index.literal, principal, host, operation)
        denied_prefixes, allowed_prefixes = _names(index.prefixed, principal, host, operation)
        if WILDCARD in denied or WILDCARD in allowed:
            return WILDCARD not in denied
        return any(
            not _has_prefix(name, denied_prefixes) for name in (*(allowed - denied), *allowed_prefixes)
        )


def _of(entries: Entries, principal: str, host: str) -> Iterator[Entry]:
    """Yield the entries for the principal or for all principals that match the host."""
    for who in (principal, WILDCARD_PRINCIPAL):
        for entry in entries.get(who, ()):
            if entry.is_of_host(host):
                yield entry


def _names(
    patterns: Mapping[str, Entries], principal: str, host: str, operation: str
) -> tuple[set[str], set[str]]:
    """(names of the patterns that deny the operation, names of the patterns that allow it)."""
    denied: set[str] = set()
    allowed: set[str] = set()
    for name, entries in patterns.items():
        for entry in _of(entries, principal, host):
            if entry.has(operation):
                (denied if entry.is_deny else allowed).add(name)
    return denied, allowed


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
