"""Which authorizer a broker has, by ``authorizer.class.name`` and the settings of that class."""

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
    """What `StandardAuthorizer` is made with, beside the ACLs."""

    super_users: frozenset[str]
    allow_everyone_if_no_acl_found: bool


def authorizer_of(values: Mapping[str, Value]) -> StandardAuthorizerSettings | None:
    """None without an authorizer; ``ConfigError`` for a class that there is not, or a super user that is no principal."""
    name = values[CLASS_NAME]
    if not name:
        return None
    if name in _OF_ZOOKEEPER:
        raise ConfigError(
            f"{CLASS_NAME}={name} kept its ACLs in ZooKeeper, and Kafka 4 has it no more: use {STANDARD_AUTHORIZER}."
        )
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(f"{CLASS_NAME}={name}: there is no such class here, only {STANDARD_AUTHORIZER}.")
    return StandardAuthorizerSettings(
        frozenset(_super_users(values[SUPER_USERS] or "")),
        (values[ALLOW_EVERYONE] or "").strip().lower() == "true",
    )


def _super_users(text: str) -> list[str]:
    """Principals with semicolons between them: the name of a principal may have commas."""
    users = [user for each in text.split(";") if (user := each.strip())]
    for user in users:
        if ":" not in user:
            raise ConfigError(
                f"{SUPER_USERS}: expected a string in format principalType:principalName but got {user}"
            )
    return users
