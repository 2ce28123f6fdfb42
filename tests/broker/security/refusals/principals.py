"""The principals of the matrix and their ACLs: one principal for each missing permission, one for each single permission.

Most principals may use names that begin with ``open-``. Some may not use names that begin with ``shut-``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

RESOURCE_TYPES: Final = {
    "TOPIC": 2,
    "GROUP": 3,
    "CLUSTER": 4,
    "TRANSACTIONAL_ID": 5,
    "DELEGATION_TOKEN": 6,
    "USER": 7,
}
OPERATIONS: Final = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
}
SUPPORTED: Final = {
    "TOPIC": (
        "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    ),
    "GROUP": ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
    ),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}  # fmt: skip
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER_NAME: Final = "kafka-cluster"

ADMIN: Final = "admin"
"""The super user."""
ANONYMOUS: Final = "ANONYMOUS"
"""The principal of clients on the listener without SASL."""


class Acl(NamedTuple):
    resource_type: str
    name: str
    operation: str
    permission: int = ALLOW
    pattern: int = LITERAL

    def binding(self, user: str) -> dict[str, Any]:
        """The ACL as an entry of CreateAcls. DeleteAcls filters have the same fields under other names."""
        return {
            "resource_type": RESOURCE_TYPES[self.resource_type],
            "resource_name": self.name,
            "resource_pattern_type": self.pattern,
            "principal": f"User:{user}",
            "host": "*",
            "operation": OPERATIONS[self.operation],
            "permission_type": self.permission,
        }


def on(resource_type: str, operation: str, prefix: str, permission: int = ALLOW) -> Acl:
    """An ACL for all names with a prefix. For the cluster, and for delegation tokens, whose ids no user can
    choose, the prefix is ignored."""
    if resource_type == "CLUSTER":
        return Acl(resource_type, CLUSTER_NAME, operation, permission)
    if resource_type == "DELEGATION_TOKEN":
        return Acl(resource_type, "*", operation, permission)
    if resource_type == "USER":
        prefix = f"User:{prefix}"
    return Acl(resource_type, prefix, operation, permission, PREFIXED)


EVERYTHING: Final = [
    *(Acl(kind, "*", "ALL") for kind in SUPPORTED if kind != "CLUSTER"),
    Acl("CLUSTER", CLUSTER_NAME, "ALL"),
]
RIGHTS: Final = [(kind, operation) for kind, operations in SUPPORTED.items() for operation in operations]


def _name(start: str, kind: str, operation: str) -> str:
    return f"{start}-{kind}-{operation}".lower().replace("_", "-")


PRINCIPALS: Final[dict[str, list[Acl]]] = {
    "none": [],
    "all": EVERYTHING,
    "open": [on(kind, "ALL", "open-") for kind in SUPPORTED if kind != "CLUSTER"],
    **{
        _name("no", kind, operation): [*EVERYTHING, on(kind, operation, "shut-", DENY)]
        for kind, operation in RIGHTS
    },
    **{_name("only", kind, operation): [on(kind, operation, "open-")] for kind, operation in RIGHTS},
}
STORY_USERS: Final = tuple(f"user-{number}" for number in range(16))
"""Users that have no permission at first. Each story uses one of them, and gives this user permissions."""
USERS: Final = (ADMIN, *PRINCIPALS, *STORY_USERS)
