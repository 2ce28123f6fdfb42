"""The certificate on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.certify.certifier import Certificate, Failure
from odradek.certify.exploration import Coverage
from odradek.certify.run import Run
from odradek.certify.verdict import Finding, failures, kinds_of

_EVIDENCE_MAX: Final = 3


def progress_line(certificate: Certificate, text: str) -> str:
    covered = certificate.covered()
    tried = covered.total() - covered[Coverage.UNTRIED]
    passed_s = time.monotonic() - certificate.began
    return (
        f"{passed_s:5.0f} s  {certificate.runs} runs, {tried} of {covered.total()} cells, "
        f"{failures(len(certificate.failures))}: {text}"
    )


def summary(certificate: Certificate) -> str:
    """All that a reader must know, the verdict last."""
    return "\n".join(_lines(certificate))


def _lines(certificate: Certificate) -> Iterator[str]:
    if certificate.ignored:
        yield f"not compared, since it differs without faults: {', '.join(sorted(certificate.ignored))}"
    for each in certificate.lints:
        yield f"warning: {each.sentence} ({each.link})"
    for failure in certificate.failures:
        yield from _failure(failure)
    covered = certificate.covered()
    counts = ", ".join(f"{covered[each]} {each.value}" for each in Coverage)
    yield f"{certificate.runs} runs in {certificate.took_s:.0f} s; of {covered.total()} cells {counts}"
    if certificate.verdict == "none":
        yield "NO VERDICT: no fault has struck within the budget"
    elif certificate.verdict == "clean":
        yield "CLEAN: under each fault that was tried the outputs are those of a run without faults"
    else:
        yield f"NOT EXACTLY ONCE: {failures(len(certificate.failures))}"


def _failure(failure: Failure) -> Iterator[str]:
    often = f"{failure.came_back} of {failure.tried} times"
    yield f"{', '.join(failure.kinds).upper()}: {failure.plan} ({often}{', seldom' if failure.is_seldom else ''})"
    yield from _findings(failure.findings)
    for note in failure.run.notes:
        yield f"  {note}"
    for each in failure.diagnosis:
        yield f"  why: {each.sentence} ({each.link})"
    yield f"  again: odradek certify again {failure.plan.id}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"  {finding.kind.value}: {finding.sentence}"
        for line in finding.evidence[:_EVIDENCE_MAX]:
            yield f"    {line}"


def attempt(run: Run, findings: Sequence[Finding]) -> str:
    """One run of a plan that is tried again."""
    verdict = ", ".join(kinds_of(findings)) or ("clean" if run.is_reached else "not reached")
    lines = [
        f"{verdict}: {run.plan} ({run.took_s:.1f} s)",
        *_findings(findings),
        *(f"  {each}" for each in run.notes),
    ]
    return "\n".join([*lines, *run.timelines.values()])
