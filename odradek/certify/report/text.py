"""The certificate as text for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.certify.certificate import Certificate, Failure
from odradek.certify.judging.findings import Finding, failures, kinds_of
from odradek.certify.lints.timeline import guilty_pair
from odradek.certify.outcome import Verdict
from odradek.certify.plans.exploration import Coverage
from odradek.certify.report.certificate import by_certainty
from odradek.certify.runs.run import Run

_EVIDENCE_MAX: Final = 3
_UNMET_MAX: Final = 8


def progress_line(certificate: Certificate, text: str) -> str:
    passed_s = time.monotonic() - certificate.began
    return (
        f"{passed_s:5.0f} s  {certificate.runs} runs, {certificate.met} of {len(certificate.needed)} that a "
        f"certificate needs, {failures(len(certificate.failures))}: {text}"
    )


def opening(certificate: Certificate, budget_s: float) -> str:
    """The line before the first fault: the estimated time that a certificate needs, and whether the budget suffices."""
    clients = (
        ", ".join(f"{name} {version}" for name, version in certificate.clients.items()) or "unknown client"
    )
    waits = (
        f"{clients} waits up to {certificate.wait_s:.0f} s for a response that never arrives"
        if certificate.wait_s
        else clients
    )
    needs_s = certificate.missing_s()
    enough = "enough" if needs_s <= budget_s else "not enough, so the certificate will be incomplete"
    return (
        f"two runs without faults passed, in {certificate.reference_s:.1f} s; {waits}. A certificate needs "
        f"{len(certificate.needed)} faults at the job's requests, about {duration(needs_s)} at this pace; the budget of "
        f"{duration(budget_s)} is {enough}"
    )


def duration(time_s: float) -> str:
    """A duration as text.

    >>> duration(42.4), duration(200)
    ('42 s', '3 min 20 s')
    """
    minutes, rest_s = divmod(round(time_s), 60)
    return f"{minutes} min {rest_s} s" if minutes else f"{rest_s} s"


def summary(certificate: Certificate) -> str:
    """The certificate as text, with the verdict as the last line."""
    return "\n".join(_lines(certificate))


def _lines(certificate: Certificate) -> Iterator[str]:
    if certificate.ignored:
        yield f"not compared, because it differs without faults: {', '.join(sorted(certificate.ignored))}"
    if certificate.workload.left_out:
        yield f"excluded by you: {', '.join(sorted(certificate.workload.left_out))}"
    yield from certificate.remarks
    for each in certificate.lints:
        yield f"warning, seen without any fault: {each.sentence} ({each.link})"
    for failure in by_certainty(certificate):
        yield from failed(failure)
    for failure in certificate.unfinished:
        yield from failed(failure)
    if certificate.redelivered:
        why = ", which the comparison allows"
        if certificate.is_at_least_once:
            why = " of records that the share group delivered again: at least once by design"
        yield f"redelivered in {certificate.redelivered} runs: duplicates{why}"
    if certificate.needed:
        covered = certificate.covered()
        counts = ", ".join(f"{covered[each]} {each.value}" for each in Coverage if covered[each])
        yield f"{certificate.runs} runs in {duration(certificate.took_s)}; of {covered.total()} cells {counts}"
        yield f"{certificate.met} of {len(certificate.needed)} that a certificate needs"
    yield from _verdict(certificate)


def _verdict(certificate: Certificate) -> Iterator[str]:
    match certificate.verdict:
        case Verdict.FAILED:
            yield f"NOT {certificate.promise.upper()}: {failures(len(certificate.failures))}"
        case Verdict.NOT_JUDGED:
            yield f"NOT JUDGED: {certificate.not_judged}"
        case Verdict.INTERRUPTED:
            yield "INTERRUPTED: no failure was found until then"
        case Verdict.NO_PROMISE:
            yield f"NO PROMISE: no failure was found, and {_no_promise(certificate)}"
        case Verdict.INCOMPLETE:
            yield f"INCOMPLETE: no failure was found; missing are {_missing(certificate)}"
        case Verdict.CLEAN:
            by = ", ".join(each.name for each in certificate.mechanisms)
            yield (
                f"{certificate.promise.upper()}: under each fault that a certificate needs, the outputs are those of a run "
                f"without faults{_BUT if certificate.is_at_least_once else ''}" + (f" ({by})" if by else "")
            )


_BUT: Final = ", apart from duplicates of records that the share group delivered again"


def _no_promise(certificate: Certificate) -> str:
    if certificate.caps:
        return f"the job's mechanism is defeated: {'; '.join(each.sentence for each in certificate.caps)}"
    return (
        f"no mechanism was seen that could make the job {certificate.promise}: no offsets in the transaction of the "
        "outputs or outside Kafka, no check, no keyed comparison"
    )


def _missing(certificate: Certificate) -> str:
    unmet = [
        f"{each} ({why})" if (why := certificate.why_unmet(each)) else str(each) for each in certificate.unmet
    ]
    if not unmet:
        return "runs that finish" if certificate.unfinished else "a kill"
    more = f" and {len(unmet) - _UNMET_MAX} more" if len(unmet) > _UNMET_MAX else ""
    return (
        f"{', '.join(unmet[:_UNMET_MAX])}{more}; about {duration(certificate.missing_s())} more at this pace"
    )


def failed(failure: Failure) -> Iterator[str]:
    """Lines for a failure: its evidence, its cause, and the command that runs it again."""
    often = f"{failure.came_back} of {failure.tried} times"
    yield f"{', '.join(failure.kinds).upper()}: {failure.plan} ({often}{', seldom' if failure.is_seldom else ''})"
    yield from _findings(failure.findings)
    for note in failure.run.notes:
        yield f"  {note}"
    if pair := guilty_pair(failure.run.trace, failure.plan):
        yield f"  between: {pair}"
    for each in failure.diagnosis:
        yield f"  why: {each.sentence} ({each.link})"
    if not failure.diagnosis:
        yield "  why: unknown"
    yield f"  again: odradek certify again {failure.plan.id}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"  {finding.kind.value}: {finding.sentence}"
        for line in finding.evidence[:_EVIDENCE_MAX]:
            yield f"    {line}"


def attempt(
    run: Run, findings: Sequence[Finding], why: Sequence[str] = (), *, timelines: bool = False
) -> str:
    """The result of one run of ``odradek certify again``."""
    verdict = ", ".join(kinds_of(findings))
    if not verdict:
        verdict = "clean" if run.is_effective else "no effect" if run.is_reached else "not reached"
    lines = [
        f"{verdict}: {run.plan} ({run.took_s:.1f} s)",
        *_findings(findings),
        *(f"  no effect: {each}" for each in run.without_effect.values()),
        *(f"  {each}" for each in run.notes),
        *(f"  why: {each}" for each in why),
    ]
    return "\n".join([*lines, *(run.timelines.values() if timelines else ())])
