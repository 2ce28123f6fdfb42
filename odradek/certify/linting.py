"""Lint a trace without a workload: input and output topics are derived from the trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints import Evidence, Lint, lint

_COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A lint, and the client that caused it."""

    lint: Lint
    client: str = ""
    """``client.id at host:port``; empty if no single exchange shows the lint."""

    @property
    def title(self) -> str:
        """The name of the lint, and the client if it is known."""
        return f"{self.lint.name}: {self.client}" if self.client else self.lint.name

    def as_dict(self) -> dict[str, str]:
        return {**self.lint.as_dict(), "client": self.client}


def observed(
    exchanges: Sequence[Exchange], inputs: Collection[str] = (), outputs: Collection[str] = ()
) -> Evidence:
    """Prepare a trace for the lints. Topics that are not given are derived from the trace.

    Inputs are the topics whose offsets a group commits; without any commits, all topics that a client fetches. Outputs are
    the topics that a client writes and that are not inputs, as the producer of an input is not part of the job.
    """
    read = frozenset(inputs) or _topics(exchanges, _COMMITS) or _topics(exchanges, {"Fetch", "ShareFetch"})
    written = frozenset(outputs) or _topics(exchanges, {"Produce"}) - read
    return Evidence(exchanges, read, written)


def _topics(exchanges: Sequence[Exchange], apis: Collection[str]) -> frozenset[str]:
    return frozenset(name for each in exchanges if each.api in apis for name in each.topics) - _INTERNAL


def occurrences(evidence: Evidence) -> list[Occurrence]:
    """The first occurrence of each lint, the likeliest cause of a failure first."""
    return [Occurrence(each, _client(evidence, each)) for each in lint(evidence)]


def _client(evidence: Evidence, found: Lint) -> str:
    shown = (each for each in evidence.exchanges if found.example and each.line == found.example)
    return next((f"{each.client_id} at {each.peer}".removeprefix(" at ") for each in shown), "")
