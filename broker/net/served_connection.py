"""A connection as the modules see it that do a part of its work."""

from __future__ import annotations

from typing import Any, Protocol


class ServedConnection(Protocol):
    """`broker.net.connection.Connection`, to modules that it imports itself."""

    _shared: Any
    _holds: int
    _answers: list[bytes | memoryview]
    _answers_bytes: int
    authentication: Any
    client: Any
    connection_id: int
    principal: str

    def _answer(self, route: Any, correlation_id: int, outcome: Any, call: Any = None) -> None: ...

    def _handle(self, route: Any, correlation_id: int, request: Any, context: Any, call: Any) -> None: ...

    def _lift(self, hold: int) -> None: ...

    def authenticated(self, principal: str, *, by_token: bool) -> None: ...

    def close(self, reason: str, **facts: object) -> None: ...

    def write_answers(self) -> None: ...
