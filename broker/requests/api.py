"""The registry of APIs: what is served is what is registered, and what is registered is what is announced.

An API is one module in ``broker/apis``. It names its key and versions once, in ``@api(...)``; there is no list to edit.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Generator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.node.context import RequestContext


class CloseConnection(Exception):
    """Raised by a handler: the peer gets no answer, its connection ends. The message goes to the log."""


class NoResponse:
    """Returned by a handler whose request wants no answer (Produce with acks=0)."""


NO_RESPONSE: Final = NoResponse()


class CompletableEarly(Protocol):
    """A request that waits, and can do without."""

    future: asyncio.Future[Any]

    def complete_early(self) -> None:
        """Answer with what there is."""
        ...


@slotted(frozen=True)
class DelayedResponse:
    """Returned by a handler that waits for something which the client can do without: it gives way to what the same
    client asks next (Fetch, of which an empty answer before its time is as good as one in time)."""

    request: CompletableEarly

    def __await__(self) -> Generator[object, None, object]:
        return self.request.future.__await__()


# A handler returns the response, or an awaitable of it when it must wait. Only then is a task made.
Handler = Callable[[Any, "RequestContext"], "object | Awaitable[object]"]
H = TypeVar("H", bound="Callable[..., object]")


@slotted(frozen=True)
class Api:
    """One served API."""

    key: int
    name: str
    versions: range
    """Served versions."""
    announced: range
    """Versions in ApiVersions; wider than ``versions`` only where Kafka announces more than it serves."""
    handler: Handler
    allow_before_authentication: bool = False


APIS: dict[int, Api] = {}


def api(
    key: int, versions: range, *, announced: range | None = None, allow_before_authentication: bool = False
) -> Callable[[H], H]:
    """Register the decorated function as the handler of an API. Two modules for one key are a mistake of ours."""

    def register(handler: H) -> H:
        if key in APIS:
            raise RuntimeError(f"API {key} is served twice: {APIS[key].name} and {handler.__module__}")
        name = handler.__module__.rpartition(".")[2]
        APIS[key] = Api(key, name, versions, announced or versions, handler, allow_before_authentication)
        return handler

    return register


@cache
def discover() -> dict[int, Api]:
    """Import every module of ``broker.apis`` and return the registry, by key."""
    package = importlib.import_module("broker.apis")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"broker.apis.{module.name}")
    return APIS
