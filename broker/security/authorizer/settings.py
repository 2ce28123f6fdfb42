"""The authorizer of a broker, from ``authorizer.class.name`` and the settings of that class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError, Value

CLASS_NAME: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OF_ZOOKEEPER: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


class StandardAuthorizerSettings(NamedTuple):
    """Arguments of `StandardAuthorizer` other than the ACLs."""

    super_users: frozenset[str]
    allow_everyone_if_no_acl_found: bool


def authorizer_of(values: Mapping[str, Value]) -> StandardAuthorizerSettings | None:
    """The authorizer's settings; None if no authorizer is configured. Raises ``ConfigError`` for an unknown class or bad
    super users.
    """
    name = values[CLASS_NAME]
    if not name:
        return None
    if name in _OF_ZOOKEEPER:
        raise ConfigError(
            f"{CLASS_NAME}={name} kept its ACLs in ZooKeeper, and Kafka 4 has removed it: use {STANDARD_AUTHORIZER}."
        )
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(f"{CLASS_NAME}={name}: unknown class, only {STANDARD_AUTHORIZER} is supported.")
    return StandardAuthorizerSettings(
        frozenset(_super_users(values[SUPER_USERS] or "")),
        (values[ALLOW_EVERYONE] or "").strip().lower() == "true",
    )


def _super_users(text: str) -> list[str]:
    """Split the principals at semicolons, since a principal's name may contain commas."""
    users = [user for each in text.split(";") if (user := each.strip())]
    for user in users:
        if ":" not in user:
            raise ConfigError(
                f"{SUPER_USERS}: expected a string in format principalType:principalName but got {user}"
            )
    return users
