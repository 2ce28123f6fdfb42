"""Handling of requests that list a resource twice: Kafka processes none of the duplicates and returns one error for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def split_duplicates(entries: Iterable[T], key: Callable[[T], K]) -> tuple[list[T], list[K]]:
    """Return (the entries whose key is unique, the keys of the other entries without repetition).

    >>> split_duplicates("abcb", str)
    (['a', 'c'], ['b'])
    """
    every = list(entries)
    count = Counter(map(key, every))
    return [one for one in every if count[key(one)] == 1], [
        name for name, times in count.items() if times > 1
    ]
