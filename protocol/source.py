"""Generates a Python function as text, for the compilers in encode.py and decode.py."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

# Kinds of a fixed size, with their struct codes.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "uuid": "16s",
}

ELEMENTS_AT_ONCE = 1000
"""Number of array elements that are read or written at once, in a millisecond or two."""


class LongMessage(Exception):
    """A message has more elements than are read or written at once."""


class Source:
    """The lines of a generated module, and the objects to which the lines refer."""

    __slots__ = ("_counter", "_depth", "_lines", "namespace")

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = dict(namespace)
        self._lines: list[str] = []
        self._depth = 0
        self._counter = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A name that the generated module does not use yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: object) -> str:
        """Make ``value`` available to the generated code. Returns its name in that code."""
        name = self.fresh(prefix)
        self.namespace[name] = value
        return name

    def struct(self, prefix: str, codes: str, method: str) -> str:
        """Make the method ``pack`` or ``unpack_from`` of a big-endian ``Struct`` available to the generated code.

        ``codes`` are format characters of ``struct``. Returns the method's name in the generated code.
        """
        return self.constant(prefix, getattr(Struct(">" + codes), method))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, title: str) -> Callable[..., Any]:
        """Execute the module and return its function ``main``."""
        exec(compile(self.text(), f"<{title}>", "exec"), self.namespace)
        function: Callable[..., Any] = self.namespace["main"]
        return function
