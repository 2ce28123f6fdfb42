"""The requests at services besides Kafka: which of them change something, and the faults that can break each.

The table is the one under "What a certificate needs at a service" in docs/certify-services.md, which gives the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

AUTOCOMMIT: Final = "autocommit"
"""Phase of a statement outside a transaction block, which commits by itself."""
IN_TRANSACTION: Final = "transaction"
_READS: Final = frozenset({"SELECT", "VALUES", "TABLE", "FETCH", "GET", "HEAD", "OPTIONS"})
_COMMITS: Final = frozenset({"COMMIT", "COMMIT PREPARED"})
_ENDS: Final = frozenset({"ROLLBACK", "ROLLBACK PREPARED"})


class Role(Enum):
    """What a request does to the state of its service."""

    READ = "read"
    WRITE = "write"
    """A statement in a transaction block: it has an effect only with the COMMIT."""
    PREPARE = "prepare"
    """PREPARE TRANSACTION: the first phase of a commit in two phases."""
    COMMIT = "commit"
    """A COMMIT, a statement that commits by itself, or an HTTP request that changes something."""
    END = "end"
    """A ROLLBACK, which undoes what has no effect yet."""
    CONNECTION = "connection"
    """A TCP connection, of whose content nothing is known."""


def service_of(on: str) -> str:
    """The name of the service in ``postgres:COMMIT``; empty for an API of Kafka."""
    return on.partition(":")[0] if ":" in on else ""


def role(on: str, phase: str) -> Role:
    """The role of the request ``on`` of a service.

    >>> role("postgres:INSERT results", "transaction"), role("http:POST /v1/payments", "").value
    (<Role.WRITE: 'write'>, 'commit')
    """
    kind, what = service_of(on).partition(".")[0], on.partition(":")[2]
    if kind == "tcp":
        return Role.CONNECTION
    verb = what.split(" ")[0]
    if what in _COMMITS:
        return Role.COMMIT
    if what == "PREPARE TRANSACTION":
        return Role.PREPARE
    if what in _ENDS:
        return Role.END
    if verb in _READS:
        return Role.READ
    return Role.WRITE if phase == IN_TRANSACTION else Role.COMMIT


_DEATHS: Final = ("kill-before", "kill-after", "lose-answer", "reset")
_OF_POSTGRES: Final = frozenset({"serialization-failure", "deadlock", "admin-shutdown"})
_OF_HTTP: Final = frozenset({"too-many-requests", "server-error", "unavailable", "duplicate"})
_FAULTS: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.COMMIT: (
        *("kill-after", "lose-answer", "kill-before", "kill-between", "reset", "lose-request", "late-answer"),
        *("serialization-failure", "admin-shutdown", "server-error", "unavailable", "too-many-requests"),
        *("duplicate", "restart-service", "empty-pool", "freeze", "second-copy", "add-instance"),
        "remove-instance",
    ),
    Role.PREPARE: (
        *("kill-after", "lose-answer", "kill-before", "kill-between", "reset", "serialization-failure"),
        *("admin-shutdown", "restart-service"),
    ),
    Role.WRITE: (
        *("kill-after", "lose-answer", "kill-before", "kill-between", "reset", "deadlock", "admin-shutdown"),
        *("late-answer", "restart-service", "empty-pool", "freeze"),
    ),
    Role.READ: ("lose-answer", "kill-before", "admin-shutdown", "server-error", "unavailable"),
    Role.END: ("kill-before", "lose-answer"),
    Role.CONNECTION: ("reset", "kill-before", "lose-answer", "late-answer", "restart-service", "empty-pool"),
}
"""By role, the faults that are tried, in this order."""
_NEEDED: Final[Mapping[Role, frozenset[str]]] = {
    Role.COMMIT: frozenset(
        {
            *("kill-after", "lose-answer", "kill-before", "kill-between", "reset"),
            *("serialization-failure", "admin-shutdown", "server-error", "unavailable"),
            *("restart-service", "empty-pool", "freeze", "second-copy"),
        }
    ),
    Role.PREPARE: frozenset({"kill-after", "lose-answer", "kill-before", "admin-shutdown"}),
    Role.WRITE: frozenset({"kill-after", "lose-answer", "deadlock", "admin-shutdown"}),
    Role.READ: frozenset(),
    Role.END: frozenset(),
    Role.CONNECTION: frozenset({"reset", "kill-before", "lose-answer", "restart-service"}),
}
"""By role, the faults that a certificate needs."""


def applies(fault: str, on: str, phase: str) -> bool:
    """Whether the fault is meaningful at this request of a service."""
    kind = service_of(on).partition(".")[0]
    if (fault in _OF_POSTGRES and kind != "postgres") or (fault in _OF_HTTP and kind != "http"):
        return False
    return fault in _FAULTS[role(on, phase)]


def is_needed(fault: str, on: str, phase: str) -> bool:
    """Whether a certificate needs this fault at this request of a service."""
    return applies(fault, on, phase) and fault in _NEEDED[role(on, phase)]


def is_decisive(on: str, phase: str) -> bool:
    """Whether the request commits something, or prepares a commit."""
    return role(on, phase) in (Role.COMMIT, Role.PREPARE)


def order(fault: str) -> int:
    """Position of the fault in the order in which faults are tried at a commit."""
    faults = _FAULTS[Role.COMMIT]
    return faults.index(fault) if fault in faults else len(faults)
