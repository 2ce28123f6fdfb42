"""The certificate as one HTML page: the matrix of moments and faults, and the run of each failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.certify.certificate import Certificate
from odradek.certify.judging.findings import failures as how_many
from odradek.certify.outcome import Verdict
from odradek.certify.plans.exploration import Coverage
from odradek.certify.plans.faults import FAULTS
from odradek.certify.plans.plan import Cell
from odradek.certify.report.certificate import by_certainty, failure_as_dict, not_promised
from odradek.certify.report.rendering import rendered

_CLASSES: Final = {
    Coverage.CLEAN: "clean",
    Coverage.FAILED: "failed",
    Coverage.UNFINISHED: "unfinished",
    Coverage.NO_EFFECT: "unreached",
    Coverage.NOT_REACHED: "unreached",
    Coverage.UNTRIED: "untried",
}


def page(certificate: Certificate, refresh_s: int = 0) -> str:
    """A self-contained page without scripts, fonts or external images. ``refresh_s`` makes the browser reload it."""
    return rendered("certificate.html.j2", _shown(certificate) | {"refresh_s": refresh_s})


def _shown(certificate: Certificate) -> dict[str, Any]:
    cells = certificate.cells
    faults = [each for each in FAULTS if any(name == each.name for _, name in cells)]
    kinds = list(dict.fromkeys(kind for kind, _ in cells))
    links = {
        injection.cell: failure.plan.id
        for failure in certificate.failures
        for injection in failure.plan.injections
    }
    rows = [
        {"moment": str(kind), "cells": [_cell(cells, links, (kind, each.name)) for each in faults]}
        for kind in kinds
    ]
    return {
        "certificate": certificate,
        "verdict": certificate.verdict.value,
        "command": " ".join(certificate.workload.command.shown),
        "counts": {state.value: certificate.covered()[state] for state in Coverage},
        "faults": faults,
        "rows": rows,
        "headline": _headline(certificate),
        "needed": {
            "met": certificate.met,
            "of": len(certificate.needed),
            "unmet": [f"{each} ({certificate.why_unmet(each) or 'untried'})" for each in certificate.unmet],
        },
        "failures": [
            failure_as_dict(each) | {"title": str(each.plan)}
            for each in (*by_certainty(certificate), *certificate.unfinished)
        ],
        "not_promised": not_promised(certificate.workload),
    }


def _headline(certificate: Certificate) -> str:
    match certificate.verdict:
        case Verdict.FAILED:
            return f"No: {how_many(len(certificate.failures))}."
        case Verdict.CLEAN:
            return "Yes, under each fault that a certificate needs."
        case Verdict.INCOMPLETE:
            return (
                "Not known yet: no failure was found, but fewer faults were tried than a certificate needs."
            )
        case Verdict.NO_PROMISE:
            return f"No promise: no mechanism was seen that could make the job {certificate.promise}. No failure was found."
        case Verdict.NOT_JUDGED:
            return "Not judged."
        case Verdict.INTERRUPTED:
            return "Not known: interrupted."


def _cell(cells: Mapping[Cell, Coverage], links: Mapping[Cell, str], cell: Cell) -> dict[str, str]:
    kind, fault = cell
    state = cells.get(cell)
    said = state.value if state is not None else "does not apply"
    return {
        "state": _CLASSES[state] if state is not None else "none",
        "link": links.get(cell, ""),
        "title": f"{fault} at {kind}: {said}",
    }
