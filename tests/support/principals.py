"""Principals for the PLAINTEXT listeners of a forked broker, in place of a principal builder, which is a Java class.

A forked broker (`tests.support.forked`) that has the environment variable gives each connection of a listener the principal
of the listener.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

VARIABLE: Final = "PRINCIPALS_OF_LISTENERS"
"""A JSON object: principals by listener name."""


def install(variable: str) -> None:
    """Change the broker that will run in this process. ``variable`` is the value of `VARIABLE`."""
    from broker.net.connections import Connections
    from broker.net.listener_security import ListenerSecurity

    principals = json.loads(variable)
    create: Callable[..., None] = Connections.__init__

    def create_with_principals(self: Connections, *arguments: Any) -> None:
        create(self, *arguments)
        added = {
            name: ListenerSecurity(self.clock, principal_of=_always(principals[name])) for name in principals
        }
        self.security = {**self.security, **added}

    setattr(Connections, "__init__", create_with_principals)  # noqa: B010


def _always(principal: str) -> Callable[[bytes | None], str]:
    return lambda certificate: principal


def as_variable(principals: Mapping[str, str]) -> dict[str, str]:
    """The environment of a broker with these principals."""
    return {VARIABLE: json.dumps(principals)} if principals else {}
