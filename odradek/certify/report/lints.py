"""The lints of a trace: a paragraph for each, and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from odradek.certify.linting import Sight
from odradek.certify.lints import Evidence


def text(evidence: Evidence, found: Sequence[Sight]) -> str:
    """What was looked at, and for each lint its name and client, the sentence, the exchange and the link."""
    seen = f"{len(evidence.exchanges)} exchanges, inputs {_names(evidence.inputs)}, outputs {_names(evidence.outputs)}"
    verdict = f"{len(found)} found" if found else "nothing found"
    return "\n\n".join([*map(_paragraph, found), f"{verdict} in {seen}"])


def _names(topics: Collection[str]) -> str:
    return ", ".join(sorted(topics)) or "none"


def _paragraph(sight: Sight) -> str:
    lint = sight.lint
    lines = [lint.sentence, lint.example, lint.link]
    return "\n  ".join([sight.title, *filter(None, lines)])


def as_dict(evidence: Evidence, found: Sequence[Sight]) -> dict[str, Any]:
    """``exchanges`` (how many), ``inputs``, ``outputs``, ``lints``: name, sentence, example, link, client."""
    return {
        "exchanges": len(evidence.exchanges),
        "inputs": sorted(evidence.inputs),
        "outputs": sorted(evidence.outputs),
        "lints": [each.as_dict() for each in found],
    }
