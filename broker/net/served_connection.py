"""The interface of a connection for the modules that do a part of its work."""

from __future__ import annotations

from typing import Any, Protocol


class ServedConnection(Protocol):
    """The part of `Connection` that is used by modules which `broker.net.connection` itself imports."""

    _pending: Any
    _shared: Any
    _holds: int
    client: Any
    connection_id: int
    last_active_tick: int

    @property
    def is_closed(self) -> bool: ...

    def _begin_context(self, header: Any, identity: int) -> Any: ...

    def _decoded(self, header: Any, route: Any, frame: Any, context: Any, request: Any) -> None: ...

    def _answer(self, route: Any, correlation_id: int, outcome: Any, call: Any = None) -> None: ...

    def _handle(self, route: Any, correlation_id: int, request: Any, context: Any, call: Any) -> None: ...

    def _lift(self, hold: int) -> None: ...

    def answer_token(self, token: bytes) -> None: ...

    def close(self, reason: str, **facts: object) -> None: ...
