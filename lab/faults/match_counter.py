"""Decides which matches of a rule are hits, by counting and by random draws from a seed. Pure."""

from __future__ import annotations

from random import Random

from lab.faults.declaration import When


class MatchCounter:
    """A counter of the matches of one rule. Equal rules with equal matches have equal hits."""

    __slots__ = ("_draws", "_when", "hits", "matches")

    def __init__(self, when: When) -> None:
        self._when = when
        # Reproducible: the seed is part of the rule.
        self._draws = Random(when.seed or 0)
        self.matches = 0
        self.hits = 0

    @property
    def spent(self) -> bool:
        """Whether the rule can have no further hit."""
        when = self._when
        if when.times is not None and self.hits >= when.times:
            return True
        return when.nth is not None and self.matches - (when.after or 0) >= when.nth

    def count_match(self) -> bool:
        """Count a match; returns whether it is a hit."""
        if self.spent:
            return False
        self.matches += 1
        if not self._counts(self.matches - (self._when.after or 0)):
            return False
        self.hits += 1
        return True

    def _counts(self, number: int) -> bool:
        when = self._when
        if number < 1:
            return False
        if when.nth is not None and number != when.nth:
            return False
        if when.every is not None and number % when.every:
            return False
        return when.p is None or self._draws.random() < when.p
