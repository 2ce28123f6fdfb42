"""Which matches of a rule are hits: counting, and drawing from a seed. Pure."""

from __future__ import annotations

from random import Random

from lab.faults.declaration import When


class MatchCounter:
    """Counts the matches of one rule. The same rule and the same matches give the same hits."""

    __slots__ = ("_draws", "_when", "hits", "matches")

    def __init__(self, when: When) -> None:
        self._when = when
        # Seeded by the rule: this is no chance.
        self._draws = Random(when.seed or 0)
        self.matches = 0
        self.hits = 0

    @property
    def spent(self) -> bool:
        """There will be no more hits, whatever comes."""
        when = self._when
        if when.times is not None and self.hits >= when.times:
            return True
        return when.nth is not None and self.matches - (when.after or 0) >= when.nth

    def count_match(self) -> bool:
        """Something matches now: is it a hit?"""
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
