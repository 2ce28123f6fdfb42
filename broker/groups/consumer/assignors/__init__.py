"""The server-side assignors by name (``group.consumer.assignors``). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.groups.consumer.assignors.ranges import assign_ranges
from broker.groups.consumer.assignors.spec import Assignor
from broker.groups.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
