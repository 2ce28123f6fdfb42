"""How a message is declared in one version, in the form that kio's and Kafka's schemas are compared and merged in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ZERO: Final = {
    "string": '""',
    "bytes": "b''",
    "records": "b''",
    "bool": "False",
    "uuid": "None",
    "float64": "0.0",
}
"""Wire type -> Python source of the default, if a schema declares none; 0 for all other types."""


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a message in one version. ``name`` is in snake case."""

    name: str
    kind: str  # a wire type, or the name of a nested class
    is_array: bool
    nullable: bool  # whether the array (if the field is one) or else the value may be null
    tag: int | None
    default: str  # Python source; "" for a struct, whose fields have defaults of their own

    @property
    def is_struct(self) -> bool:
        return self.kind[0].isupper()


@dataclass(frozen=True, slots=True)
class WireClass:
    """A message, or a class nested in one, in one version."""

    name: str
    is_flexible: bool
    fields: tuple[WireField, ...]
