"""Fails a test in which a coroutine is resumed after its node's life (`broker.loop.coroutines`).

A coroutine that is dropped without being awaited is a RuntimeWarning of Python's, which fails a test as every warning does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import pytest

from broker.loop import coroutines


class Misuse:
    """What breaks the rules while it is entered."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> Self:
        self._before = coroutines.misused
        coroutines.misused = lambda event, coroutine: self.found.append(f"{event}: {coroutine!r}")
        return self

    def __exit__(self, *exc_info: object) -> None:
        coroutines.misused = self._before


@pytest.fixture(autouse=True)
def coroutines_as_ruled() -> Iterator[None]:
    with Misuse() as misuse:
        yield
    assert not misuse.found, misuse.found
