"""Clients' regular expressions: bounds that are checked before RE2 parses an expression, and the cost of expressions within
these bounds."""

from __future__ import annotations

import resource
import time

import pytest

from broker.config.patterns import (
    PATTERN_CHARACTERS_MAX,
    PATTERNS_KEPT,
    UNICODE_CLASSES_MAX,
    InvalidPattern,
    full_match,
)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\pL" * 60_000,
        r"\PL" * (UNICODE_CLASSES_MAX + 1),
        r"[\p{Lu}\p{Ll}\pN\pP\pS\pZ\pC\pM\p{Greek}]",
        "a" * (PATTERN_CHARACTERS_MAX + 1),
        r"\pL{1000}",
    ],
)
def test_beyond_the_bounds(pattern):
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with pytest.raises(InvalidPattern):
        full_match(pattern)
    # CPU time, with a margin: without the bounds the first pattern took 12 s and 1.8 GB.
    assert time.process_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


def test_at_the_bounds():
    assert full_match(r"\pL" * UNICODE_CLASSES_MAX)("a" * UNICODE_CLASSES_MAX)
    assert full_match("a" * PATTERN_CHARACTERS_MAX)("a" * PATTERN_CHARACTERS_MAX)


def test_groups_cost_nothing():
    began = time.process_time()
    assert full_match("(.*)" * 200)("é" * 16_000)
    assert time.process_time() - began < 1, "this takes more than two seconds if RE2 reports the groups"


@pytest.mark.parametrize("pattern", ["(a+a+)+y", "((a*)*)*b", "(a|aa)+b", "(.*a){1,50}b", "(a|a?)+b"])
def test_matching_does_not_backtrack(pattern):
    """Matching takes linear time. A backtracking engine such as Python's would practically never finish some of these
    patterns."""
    matches = full_match(pattern)
    assert not any(matches("a" * 249) for _ in range(100))


def test_the_cache_of_patterns_is_bounded():
    import re2

    assert full_match("order-[0-9]+") is full_match("order-[0-9]+")
    for number in range(2 * PATTERNS_KEPT):
        full_match(f"order-{number}")
    assert full_match.cache_info().currsize == PATTERNS_KEPT
    assert re2._Regexp._make.cache_info().currsize == 0
