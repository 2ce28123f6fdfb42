"""The certificate as JSON: the job, the coverage, the failures, and the limits of the certificate."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any, Final

from odradek.certify.certificate import Certificate, Failure
from odradek.certify.lints.timeline import guilty_pair
from odradek.certify.plans.exploration import Coverage
from odradek.certify.workload import Workload

NOT_PROMISED: Final = (
    "Faults are injected at requests that the job made in the reference run, and at random instants between two of them.",
    "Cells that are not reached, without effect or not tried show nothing.",
    "Clean means that the outputs were those of a run without faults, under the faults, seeds and versions listed here.",
)


def not_promised(workload: Workload) -> list[str]:
    """The limits of a clean certificate, as sentences."""
    if not workload.upstream:
        return list(NOT_PROMISED)
    elsewhere = (
        f"The job ran against {workload.upstream} through a proxy: faults affected requests and responses only. No instance "
        "was killed or frozen, no node was killed, nothing was moved, no timeout was triggered."
    )
    return [*NOT_PROMISED, elsewhere]


VERSION: Final = 2
"""Version of the JSON format.

Version 1 had the verdicts clean, failed and none, and listed the kinds of a failure repeatedly and in any order.
"""


def as_dict(certificate: Certificate) -> dict[str, Any]:
    workload = certificate.workload
    verdict = certificate.verdict
    return {
        "version": VERSION,
        "verdict": verdict.value,
        "exit_code": verdict.exit_code,
        "why_not_judged": certificate.not_judged or None,
        "needed": {
            "met": certificate.met,
            "of": len(certificate.needed),
            "unmet": [
                {"request": each.on, "fault": each.fault, "why": certificate.why_unmet(each) or "untried"}
                for each in certificate.unmet
            ],
            "missing_s": round(certificate.missing_s(), 1) if certificate.unmet else 0.0,
        },
        "mechanisms": [each.as_dict() for each in certificate.mechanisms],
        "caps": [each.name for each in certificate.caps],
        "delivery": certificate.delivery.value,
        "profile": certificate.profile,
        "remarks": certificate.remarks,
        "odradek": version("odradek"),
        "clients": certificate.clients,
        "job": {
            "command": workload.command.shown,
            "digest": hashlib.sha256(json.dumps(workload.command.shown).encode()).hexdigest(),
            "instances": workload.instances,
            "outputs": list(workload.output_names),
            "until": str(workload.until),
            "compare": workload.compare.value,
            "ignored": sorted(certificate.ignored),
        },
        "left_out": sorted(workload.left_out),
        "seed": certificate.seed,
        "runs": certificate.runs,
        "took_s": round(certificate.took_s, 1),
        "reference_s": round(certificate.reference_s, 3),
        "cells": _cells(certificate),
        "lints": [each.as_dict() for each in certificate.lints],
        "failures": [failure_as_dict(each) for each in by_certainty(certificate)],
        "unfinished": [failure_as_dict(each) for each in certificate.unfinished],
        "redelivered_runs": certificate.redelivered,
        "not_promised": not_promised(workload),
    }


def by_certainty(certificate: Certificate) -> list[Failure]:
    """The failures, the most certain one first."""
    return sorted(certificate.failures, key=lambda each: each.certainty, reverse=True)


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
        "faults": [each.sentence for each in failure.plan.injections],
        "findings": [each.as_dict() for each in failure.findings],
        "diagnosis": [each.as_dict() for each in failure.diagnosis],
        "came_back": failure.came_back,
        "tried": failure.tried,
        "seldom": failure.is_seldom,
        "notes": failure.run.notes,
        "without_effect": failure.run.without_effect,
        "exits": [{"instance": number, "code": code} for number, code in failure.run.exits],
        "timelines": failure.run.timelines,
        "log": failure.run.log,
        "between": guilty_pair(failure.run.trace, failure.plan) or None,
    }
