"""What lints look at, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.certify.exchanges import Exchange

DOCS: Final = "docs/certify.md"
_FLINK: Final = "-enumerator-admin-client"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What lints know of a run."""

    exchanges: Sequence[Exchange]
    inputs: frozenset[str]
    outputs: frozenset[str]
    has_times: bool = True
    """Not where a clock was moved: what lies before that looks long ago."""

    @property
    def is_flink(self) -> bool:
        """Its positions are in checkpoints, those of the group are for show; its ids count checkpoints, and each start ends
        what the one before has left open."""
        return any(each.client_id.endswith(_FLINK) for each in self.exchanges)

    @property
    def transactional_ids(self) -> list[str]:
        return sorted({each.transactional_id for each in self.exchanges if each.transactional_id})


@dataclass(frozen=True, slots=True)
class Lint:
    """One line of the diagnosis."""

    name: str
    sentence: str
    example: str = ""
    """The exchange that shows it, as a line."""
    shown: Exchange | None = field(default=None, compare=False, repr=False)
    """That exchange itself."""

    @property
    def link(self) -> str:
        return f"{DOCS}#{self.name}"

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "sentence": self.sentence, "example": self.example, "link": self.link}


def seen_at(exchange: Exchange, name: str, sentence: str) -> Lint:
    """A lint that this exchange shows."""
    return Lint(name, sentence, exchange.line, exchange)
