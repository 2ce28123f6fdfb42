"""Structs that several operations share, and how they are made."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

NODE_ID_MAX = 2**31 - 1
FAULT_ID_MAX = 2**53 - 1
"""Whole numbers that JSON readers of every language can hold."""

WAIT_MS_MAX = 600_000
"""Of one call that waits."""

NodeId = Annotated[int, Meta(ge=0, le=NODE_ID_MAX, description="The id of a node.")]
FaultId = Annotated[
    int, Meta(ge=0, le=FAULT_ID_MAX, description="The id that the fault was given when it was added.")
]


class Given(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a caller sends: a name that means nothing is an error, never passed over."""


class View(msgspec.Struct, kw_only=True):
    """What a caller gets."""
