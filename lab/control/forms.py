"""Structs and types that several operations share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

NODE_ID_MAX = 2**31 - 1
FAULT_ID_MAX = 2**53 - 1
"""Largest integer that JSON libraries of every language can represent exactly."""

WAIT_MS_MAX = 600_000
"""Longest timeout that a call may request, such as one that waits for a hit of a rule."""

NodeId = Annotated[int, Meta(ge=0, le=NODE_ID_MAX, description="The id of a node.")]
FaultId = Annotated[
    int, Meta(ge=0, le=FAULT_ID_MAX, description="The id that the fault was given when it was added.")
]


class Given(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of structs that a caller sends. An unknown field is an error."""


class View(msgspec.Struct, kw_only=True):
    """Base of structs in responses."""
