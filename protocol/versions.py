"""Derives the message class of one version of an API.

The classes in ``protocol/messages`` have the union of all fields, and ``__fields__`` with the versions of each.
``at_version`` derives a subclass for one version, whose table ``__wire__`` has exactly the fields of that version. Encoder
and decoder are compiled from that table. A field that the version lacks is a constant of the subclass, so it reads as its
default.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Literal

from .messages.index import APIS
from .slotted import slotted
from .source import FIXED

Side = Literal["request", "response"]

# Wire kinds. Any other name in ``__fields__`` is a class in the same module.
KINDS = {*FIXED, "string", "bytes", "records"}


class UnknownVersion(KeyError):
    """There is no such API, or no such version of it."""


@slotted(frozen=True)
class WireField:
    """One field of one version, for encoder and decoder."""

    name: str
    kind: str  # a wire kind, or "struct"
    is_array: bool
    nullable: bool  # whether the array (if the field is one) or else the value may be null
    tag: int | None
    default: Any
    nested: Any = None  # the derived class, if kind is "struct"


def versions_of(key: int) -> Sequence[int]:
    """The known versions of an API, ascending."""
    try:
        _, first, last, _ = APIS[key]
    except KeyError:
        raise UnknownVersion(f"no API has the key {key}") from None
    return range(first, last + 1)


def message_name(api: str) -> str:
    """Name in Kafka's spelling: ``ListOffsets`` for ``list_offsets``.

    With ``Request`` or ``Response`` appended, this is the name of a message class.
    """
    return api.title().replace("_", "")


@cache
def at_version(key: int, version: int, side: Side) -> Any:
    """The message class of one version: a subclass of the class in ``protocol.messages``."""
    if version not in versions_of(key):
        raise UnknownVersion(f"{APIS[key][0]} (key {key}) has no version {version}")
    api, _, _, first_flexible = APIS[key]
    module = import_module(f".messages.{api}", __package__)
    flexible = first_flexible is not None and version >= first_flexible
    return _Family(vars(module), version, flexible).derive(message_name(api) + side.title())


class _Family:
    """The classes of a request or a response in one version, by the names of their base classes."""

    def __init__(self, bases: dict[str, Any], version: int, flexible: bool) -> None:
        self._bases = bases
        self._version = version
        self._flexible = flexible
        self._derived: dict[str, Any] = {}

    def derive(self, name: str) -> Any:
        if name not in self._derived:
            self._derived[name] = self._derive(self._bases[name])
        return self._derived[name]

    def _derive(self, base: Any) -> Any:
        wire: list[WireField] = []
        absent: dict[str, Any] = {}
        for name, kind, first, last, nullable_since, tag, default in base.__fields__:
            if not first <= self._version <= last:
                absent[name] = default
                continue
            is_array, kind = kind.startswith("[]"), kind.removeprefix("[]")
            nullable = nullable_since is not None and self._version >= nullable_since
            nested = None
            if kind not in KINDS:
                kind, nested = "struct", self.derive(kind)
            wire.append(WireField(name, kind, is_array, nullable, tag, default, nested))
        namespace = {
            "__slots__": (),
            "__module__": base.__module__,
            "__wire__": tuple(wire),
            "__version__": self._version,
            "__flexible__": self._flexible,
            # Shared default instances are frozen. A message that was decoded is filled field by field.
            "__setattr__": object.__setattr__,
            # These hide the slots of the base class, so that an instance has the default.
            **absent,
        }
        return type(base.__name__, (base,), namespace)
