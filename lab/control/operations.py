"""Registry of the control port's operations. Each operation is one function, which describes itself completely.

    @operation("POST", "/v1/nodes/{node_id}/kill", answer_example={...}, role=Role.STOP)
    async def kill_node(control: Control, params: OneNode) -> NodeView:
        \"\"\"Kill a node as kill -9 does: its connections are reset, and it writes nothing more.\"\"\"

The signature is the contract: ``params`` is filled from the path and the query, ``body`` from the JSON of the request, and
the return value is sent as JSON. The OpenAPI document is generated from signatures and docstrings alone. An operation is
discovered because it is in a module of ``lab.control.routes``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from lab.control.access import Role
from lab.control.input_errors import not_json, not_of_the_form
from lab.control.ports import Looking
from protocol.slotted import slotted

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {}

_Function = Callable[..., Awaitable[object]]
RoleOf = Callable[[Any], Role]
_F = TypeVar("_F", bound=_Function)
_SAFE_METHODS: Final = ("GET", "HEAD")


@slotted(frozen=True)
class Stream:
    """A response that is not JSON, or that is produced while it is sent."""

    content_type: str
    chunks: AsyncGenerator[bytes, None]


@slotted(frozen=True)
class Operation:
    """One operation of the control port."""

    method: str
    path: str
    function: _Function
    control: type[Looking]
    """Type of the function's first argument. A port has the operation if its own `Looking` object is of this type."""
    params: Any | None
    """Struct of the parameters in path and query; None if the operation has no parameters."""
    body: Any | None
    answer: Any
    """Struct of the response, or ``Stream`` for a response of another ``content_type``."""
    body_example: Any
    answer_example: Any
    content_type: str
    open_to_all: bool
    """Whether the operation requires no token and allows any Host header, as for health checks."""
    may_wait: bool
    """Whether a response may take long, so that the call counts towards ``CALLS_MAX``. Other calls do not count."""
    ends_with_caller: bool
    """Whether a call is cancelled when its caller disconnects, although it changes something."""
    role: Role
    """Role that a call requires."""
    role_of: RoleOf | None
    """Returns the role that a call with this body requires; None if the role does not depend on the body."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def sentence(self) -> str:
        return " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())

    @property
    def description(self) -> str:
        return " ".join((self.function.__doc__ or "").partition("\n\n")[2].split())

    @property
    def changes_state(self) -> bool:
        return self.method not in _SAFE_METHODS

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)


def operation(
    method: str,
    path: str,
    *,
    answer_example: Any,
    body_example: Any = None,
    content_type: str = "application/json",
    open_to_all: bool = False,
    may_wait: bool = False,
    ends_with_caller: bool = False,
    role: Role | None = None,
    role_of: RoleOf | None = None,
) -> Callable[[_F], _F]:
    """Decorator: register a function ``(control, params=…, body=…) -> response`` for ``method path``.

    ``params`` and ``body`` are optional. Without ``role``, GET requires the role look, everything else the role stage.
    """

    def register(function: _F) -> _F:
        assert (method, path) not in OPERATIONS, f"{method} {path} is served twice"
        types = get_type_hints(function)
        assert issubclass(types["control"], Looking), f"{function.__name__} does not say what it needs"
        OPERATIONS[method, path] = Operation(
            method=method,
            path=path,
            function=function,
            control=types["control"],
            params=types.get("params"),
            body=types.get("body"),
            answer=types["return"],
            body_example=body_example,
            answer_example=answer_example,
            content_type=content_type,
            open_to_all=open_to_all,
            may_wait=may_wait,
            ends_with_caller=ends_with_caller or method in _SAFE_METHODS,
            role=role or (Role.LOOK if method in _SAFE_METHODS else Role.STAGE),
            role_of=role_of,
        )
        return function

    return register


@cache
def discover() -> Mapping[tuple[str, str], Operation]:
    """Import the modules of ``routes``; returns all operations by (method, path)."""
    routes = importlib.import_module("lab.control.routes")
    for module in pkgutil.iter_modules(routes.__path__, f"{routes.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(OPERATIONS.items(), key=lambda item: (item[0][1], item[0][0])))


def arguments(operation: Operation, params: Mapping[str, str], body: bytes) -> dict[str, object]:
    """Arguments for the operation's function. Raises ``ValueError`` with a message for invalid input."""
    found: dict[str, object] = {}
    if operation.params is not None:
        # Parameters are text, so "3" must be accepted as a number.
        try:
            found["params"] = msgspec.convert(params, type=operation.params, strict=False)
        except msgspec.ValidationError as error:
            hidden = operation.path_names
            raise ValueError(not_of_the_form(error, operation.params, params, "parameter", hidden)) from None
    elif params:
        raise ValueError(
            f"{operation.method} {operation.path} takes no parameters, but {', '.join(params)} was given"
        )
    if operation.body is not None:
        found["body"] = decode_body(operation, body)
    elif body.strip() not in (b"", b"{}"):
        raise ValueError(f"{operation.method} {operation.path} takes no body")
    return found


def decode_body(operation: Operation, body: bytes) -> object:
    try:
        return _decoded(operation, body.strip() or b"{}")
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    except msgspec.DecodeError as error:
        raise ValueError(not_json(error)) from None


def _decoded(operation: Operation, body: bytes) -> object:
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        # Report invalid JSON first: this may raise too.
        given = msgspec.json.decode(body)
        raise ValueError(not_of_the_form(error, operation.body, given, "field")) from None


async def call(operation: Operation, control: Looking, found: Mapping[str, object]) -> object:
    return await operation.function(control, **found)
