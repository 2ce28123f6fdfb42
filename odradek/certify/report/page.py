"""The certificate as one HTML page: a matrix of moments and faults, and for each failure its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from odradek.certify.certifier import Certificate
from odradek.certify.exploration import Coverage
from odradek.certify.faults import FAULTS
from odradek.certify.plan import Cell
from odradek.certify.report.certificate import NOT_PROMISED, failure_as_dict

_CLASSES: Final = {
    Coverage.CLEAN: "clean",
    Coverage.FAILED: "failed",
    Coverage.NOT_REACHED: "unreached",
    Coverage.UNTRIED: "untried",
}


def page(certificate: Certificate) -> str:
    """Complete in itself: no script, font or picture from elsewhere."""
    environment = Environment(
        loader=PackageLoader("odradek.certify.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("certificate.html.j2").render(_shown(certificate))


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
        "command": " ".join(certificate.workload.command.words),
        "counts": {state.value: certificate.covered()[state] for state in Coverage},
        "faults": faults,
        "rows": rows,
        "failures": [failure_as_dict(each) | {"title": str(each.plan)} for each in certificate.failures],
        "not_promised": NOT_PROMISED,
    }


def _cell(cells: Mapping[Cell, Coverage], links: Mapping[Cell, str], cell: Cell) -> dict[str, str]:
    kind, fault = cell
    state = cells.get(cell)
    said = state.value if state is not None else "means nothing there"
    return {
        "state": _CLASSES[state] if state is not None else "none",
        "link": links.get(cell, ""),
        "title": f"{fault} at {kind}: {said}",
    }
