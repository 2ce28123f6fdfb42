"""The requests of the authorization matrix: in each API and version, for resources that all, some or no users may
use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.world import World
from tests.support import raw

Bodies = Callable[[World, int], Body]
ALL_TOPICS = ("open-a", "shut-a", "open-new", "shut-new")
"""Two topics that exist and two that do not."""


class Case(NamedTuple):
    """One request of an API, in some of its versions."""

    api: str
    label: str
    versions: tuple[int, ...]
    body: Bodies
    prepare: Callable[[World], object] | None = None
    """What the administrator does before each request, None for nothing."""

    @property
    def id(self) -> str:
        return f"{self.api}:{self.label}" if self.label else self.api


CASES: list[Case] = []


def case(
    api: str,
    label: str = "",
    *,
    since: int = 0,
    until: int = 99,
    prepare: Callable[[World], object] | None = None,
) -> Callable[[Bodies], Bodies]:
    """Decorator: register a case. The decorated function makes the body of its request for a version of the API."""

    def add(body: Bodies) -> Bodies:
        served = tuple(each for each in raw.versions(api) if since <= each <= until)
        CASES.append(Case(api, label, served, body, prepare))
        return body

    return add


def by(world: World, version: int, name: str, ids_since: int, field: str = "name") -> dict[str, Any]:
    """The field that identifies the topic ``name`` in this version of the request: its id since version
    ``ids_since``, before that its name in ``field``."""
    if version >= ids_since:
        return {"topic_id": world.id_of(name)}
    return {field: name}
