"""The lints on a trace alone: without a workload the trace itself says which topics are inputs, and which are outputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints import Evidence, Lint, lint

_COMMITS: Final = frozenset({"OffsetCommit", "TxnOffsetCommit"})
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True, slots=True)
class Sight:
    """A lint, and the client that was seen at it."""

    lint: Lint
    client: str = ""
    """``client.id at host:port``; empty where no single exchange shows the lint."""

    @property
    def title(self) -> str:
        """The name of the lint, and the client where it is known."""
        return f"{self.lint.name}: {self.client}" if self.client else self.lint.name

    def as_dict(self) -> dict[str, str]:
        return {**self.lint.as_dict(), "client": self.client}


def observed(
    exchanges: Sequence[Exchange], inputs: Collection[str] = (), outputs: Collection[str] = ()
) -> Evidence:
    """What the lints look at. Topics that are not named are those that the trace shows.

    Inputs are the topics whose positions a group commits, or without any commit all that a client fetches. Outputs are the
    topics that a client writes and that are no inputs: who fills an input is no part of the job.
    """
    read = frozenset(inputs) or _topics(exchanges, _COMMITS) or _topics(exchanges, {"Fetch"})
    written = frozenset(outputs) or _topics(exchanges, {"Produce"}) - read
    return Evidence(exchanges, read, written)


def _topics(exchanges: Sequence[Exchange], apis: Collection[str]) -> frozenset[str]:
    return frozenset(name for each in exchanges if each.api in apis for name in each.topics) - _INTERNAL


def sights(evidence: Evidence) -> list[Sight]:
    """The first sight of each lint, the likeliest reason for a failure first."""
    return [Sight(each, _client(evidence, each)) for each in lint(evidence)]


def _client(evidence: Evidence, found: Lint) -> str:
    shown = (each for each in evidence.exchanges if found.example and each.line == found.example)
    return next((f"{each.client_id} at {each.peer}".removeprefix(" at ") for each in shown), "")
