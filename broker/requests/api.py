"""The registry of APIs. ApiVersions announces exactly the APIs that are registered, and the broker serves them.

An API is one module in ``broker/apis``, which states its key and versions in ``@api(...)``. There is no list to edit.
The module is imported when its first request arrives. `broker.requests.served` has a generated copy of its key and versions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from broker.node.context import RequestContext


class CloseConnection(Exception):
    """Raised by a handler to close the connection, after sending the response ``answer`` if there is one.

    The message is logged as the reason. Values that the client controls belong in ``facts``, because the log's rate limits
    count lines by their message (`broker.logging.limits`).
    """

    def __init__(self, reason: str, answer: object = None, **facts: object) -> None:
        super().__init__(reason)
        self.answer = answer
        self.facts = facts


UNSTABLE_VERSIONS: Final[Mapping[int, int]] = {22: 6}
"""API key -> the version that ``unstable.api.versions.enable`` enables in addition to those of `Api`: Kafka's
``latestVersionUnstable``.
"""


class NoResponse:
    """Returned by a handler whose request gets no response (Produce with acks=0)."""


NO_RESPONSE: Final = NoResponse()


# A handler returns the response, or a coroutine (`broker.loop.coroutines`) that returns it, if it may have to wait.
Handler = Callable[[Any, "RequestContext"], "object | Coroutine[Any, Any, object]"]
H = TypeVar("H", bound="Callable[..., object]")


class Api:
    """One API that the broker serves."""

    __slots__ = ("_handler", "allow_before_authentication", "announced", "key", "name", "versions")

    def __init__(
        self,
        key: int,
        name: str,
        versions: range,
        announced: range,
        handler: Handler | None = None,
        allow_before_authentication: bool = False,
    ) -> None:
        """If ``handler`` is None, the module ``name`` is imported when the handler is first needed."""
        self.key = key
        self.name = name
        self.versions = versions
        """Versions that the handler accepts."""
        self.announced = announced
        """Versions that ApiVersions lists. Wider than ``versions`` only where Kafka announces more than it serves."""
        self.allow_before_authentication = allow_before_authentication
        self._handler = handler

    @property
    def handler(self) -> Handler:
        if self._handler is None:
            _import(self.name)
            assert self._handler is not None, f"broker.apis.{self.name} does not serve API {self.key}"
        return self._handler

    def register(self, handler: Handler) -> None:
        if self._handler is not None:
            raise RuntimeError(
                f"API {self.key} is served twice: {self._handler.__module__} and {handler.__module__}"
            )
        self._handler = handler


APIS: dict[int, Api] = {}


def api(
    key: int, versions: range, *, announced: range | None = None, allow_before_authentication: bool = False
) -> Callable[[H], H]:
    """Register the decorated function as the handler of an API. Raises RuntimeError if two modules serve the same key."""

    def register(handler: H) -> H:
        name = handler.__module__.rpartition(".")[2]
        # The decorator's arguments take precedence over `served`, which may be out of date in a checkout.
        known = APIS.setdefault(key, Api(key, name, versions, announced or versions))
        known.register(handler)
        known.name, known.versions, known.announced = name, versions, announced or versions
        known.allow_before_authentication = allow_before_authentication
        return handler

    return register


@cache
def discover() -> dict[int, Api]:
    """Return the registry, by API key. Imports modules that are missing from `served`."""
    from broker.requests.served import SERVED

    for key, (name, versions, announced, allow_before_authentication) in SERVED.items():
        if key not in APIS:
            APIS[key] = Api(key, name, versions, announced, None, allow_before_authentication)
    for name in _modules() - {api.name for api in APIS.values()}:
        _import(name)
    return APIS


def registered() -> dict[int, Api]:
    """Import every module of ``broker.apis`` and return the registry, by API key."""
    for name in _modules():
        _import(name)
    return APIS


def _modules() -> set[str]:
    package = import_module("broker.apis")
    files = (name for folder in package.__path__ for name in os.listdir(folder))
    return {name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_")}


def _import(name: str) -> None:
    import_module(f"broker.apis.{name}")
