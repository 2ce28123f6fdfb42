"""Requests that name one thing twice: Kafka does neither, and says so once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def apart(entries: Iterable[T], key: Callable[[T], K]) -> tuple[list[T], list[K]]:
    """The entries that are named once, and the names of those that are named more often.

    >>> apart("abcb", str)
    (['a', 'c'], ['b'])
    """
    every = list(entries)
    count = Counter(map(key, every))
    return [one for one in every if count[key(one)] == 1], [
        name for name, times in count.items() if times > 1
    ]
