"""The certificate as JSON: what was run, what was covered, what failed, and what is not promised."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any, Final

from odradek.certify.certifier import Certificate, Failure
from odradek.certify.exploration import Coverage
from odradek.certify.workload import Workload

NOT_PROMISED: Final = (
    "Faults strike at requests that the job made in the reference run, not at instants inside the job's own code.",
    "Cells that are not reached or not tried say nothing.",
    "Clean means that the outputs were those of a run without faults, under the faults, seeds and versions named here.",
)


def not_promised(workload: Workload) -> list[str]:
    """Sentences on what a clean certificate does not say."""
    if not workload.upstream:
        return list(NOT_PROMISED)
    elsewhere = (
        f"The job ran before {workload.upstream}, behind a proxy: faults struck requests and answers only. No instance was "
        "killed or frozen, no node died, nothing was moved, no time-out was brought about."
    )
    return [*NOT_PROMISED, elsewhere]


def as_dict(certificate: Certificate) -> dict[str, Any]:
    workload = certificate.workload
    return {
        "verdict": certificate.verdict,
        "odradek": version("odradek"),
        "clients": certificate.clients,
        "job": {
            "command": list(workload.command.words),
            "digest": hashlib.sha256(json.dumps(workload.command.words).encode()).hexdigest(),
            "instances": workload.instances,
            "outputs": list(workload.outputs),
            "until": str(workload.until),
            "compare": workload.compare.value,
            "ignored": sorted(certificate.ignored),
        },
        "seed": certificate.seed,
        "runs": certificate.runs,
        "took_s": round(certificate.took_s, 1),
        "reference_s": round(certificate.reference_s, 3),
        "cells": _cells(certificate),
        "lints": [each.as_dict() for each in certificate.lints],
        "failures": [failure_as_dict(each) for each in certificate.failures],
        "not_promised": not_promised(workload),
    }


def _cells(certificate: Certificate) -> dict[str, Any]:
    covered = certificate.covered()
    counts = {state.value: covered[state] for state in Coverage}
    return {
        "counts": counts,
        "of": [
            {"moment": str(kind), "fault": fault, "state": state.value}
            for (kind, fault), state in certificate.cells.items()
        ],
    }


def failure_as_dict(failure: Failure) -> dict[str, Any]:
    return {
        "plan": json.loads(failure.plan.as_json()),
        "plan_id": failure.plan.id,
        "faults": [each.fault.sentence for each in failure.plan.injections],
        "findings": [each.as_dict() for each in failure.findings],
        "diagnosis": [each.as_dict() for each in failure.diagnosis],
        "came_back": failure.came_back,
        "tried": failure.tried,
        "seldom": failure.is_seldom,
        "notes": failure.run.notes,
        "exits": [{"instance": number, "code": code} for number, code in failure.run.exits],
        "timelines": failure.run.timelines,
        "log": failure.run.log,
    }
