"""The lints of a trace, as paragraphs of text and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from odradek.certify.linting import Occurrence
from odradek.certify.lints import Evidence


def text(evidence: Evidence, found: Sequence[Occurrence]) -> str:
    """A summary of the trace, and for each lint its name and client, the sentence, the exchange and the link."""
    seen = f"{len(evidence.exchanges)} exchanges, inputs {_names(evidence.inputs)}, outputs {_names(evidence.outputs)}"
    verdict = f"{len(found)} found" if found else "nothing found"
    return "\n\n".join([*map(_paragraph, found), f"{verdict} in {seen}"])


def _names(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics)) or "none"


def _paragraph(occurrence: Occurrence) -> str:
    lint = occurrence.lint
    lines = [lint.sentence, lint.example, lint.link]
    return "\n  ".join([occurrence.title, *filter(None, lines)])


def as_dict(evidence: Evidence, found: Sequence[Occurrence]) -> dict[str, Any]:
    """``exchanges`` (their number), ``inputs``, ``outputs``, and ``lints`` with name, sentence, example, link and client."""
    return {
        "exchanges": len(evidence.exchanges),
        "inputs": sorted(evidence.inputs),
        "outputs": sorted(evidence.outputs),
        "lints": [each.as_dict() for each in found],
    }
