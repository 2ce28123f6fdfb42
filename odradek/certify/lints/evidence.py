"""The input and the result of lints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.certify.exchanges import Exchange

DOCS: Final = "docs/certify.md"
SERVICES_DOCS: Final = "docs/certify-services.md"
_FLINK: Final = "-enumerator-admin-client"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The data about a run that lints examine."""

    exchanges: Sequence[Exchange]
    inputs: frozenset[str]
    outputs: frozenset[str]
    has_times: bool = True
    """Whether times in the trace can be compared. False if a clock was advanced, as earlier times then seem long ago."""

    @property
    def is_flink(self) -> bool:
        """Whether the job is a Flink job.

        Flink keeps its offsets in checkpoints and commits a group's offsets for information only. Its transactional ids
        contain checkpoint numbers, and each start ends transactions that the previous run left open.
        """
        return any(each.client_id.endswith(_FLINK) for each in self.exchanges)

    @property
    def transactional_ids(self) -> list[str]:
        return sorted({each.transactional_id for each in self.exchanges if each.transactional_id})


@dataclass(frozen=True, slots=True)
class Lint:
    """A cause of a failure, or a warning, that a trace shows."""

    name: str
    sentence: str
    example: str = ""
    """The exchange that shows the lint, as a line of the trace."""
    shown: Exchange | None = field(default=None, compare=False, repr=False)
    """The exchange that shows the lint; None if no single exchange does."""
    docs: str = field(default=DOCS, compare=False)
    """The page with a section on the lint."""

    @property
    def link(self) -> str:
        return f"{self.docs}#{self.name}"

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "sentence": self.sentence, "example": self.example, "link": self.link}


def seen_at(exchange: Exchange, name: str, sentence: str, docs: str = DOCS) -> Lint:
    """Create a lint that this exchange shows."""
    return Lint(name, sentence, exchange.line, exchange, docs)
