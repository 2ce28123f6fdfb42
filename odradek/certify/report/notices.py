"""The findings and lints of a certificate or a trace as notices for continuous integration.

SARIF (`sarif`) and the annotations of GitHub (`github`) are written from notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from odradek.certify.judging.findings import Finding, Kind
from odradek.certify.linting import Occurrence
from odradek.certify.lints import DOCS

if TYPE_CHECKING:
    # These imports need packages of the extra, which the lints alone do not need.
    from odradek.certify.certificate import Certificate, Failure

ERROR: Final = "error"
WARNING: Final = "warning"
_VERDICTS: Final = f"{DOCS}#verdicts"
_EVIDENCE_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """The common properties of notices of one kind."""

    id: str
    """The kind of a finding or the name of a lint, with hyphens."""
    sentence: str
    link: str
    """Path of the documentation section that explains the rule, from the root of the project."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A finding or lint, as continuous integration displays it."""

    rule: Rule
    level: str
    """`ERROR` or `WARNING`."""
    title: str
    """One line of text."""
    message: str
    """One or more lines of text."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For a finding: plan, plan_id, moments, faults, came_back, tried."""
    identity: str = ""
    """Identifies a problem: equal for the same problem in different runs; empty if unknown."""


_SENTENCES: Final = {
    Kind.LOST: "Records of a run without faults are missing",
    Kind.DUPLICATED: "Records were written more than once",
    Kind.TORN: "Records are missing in one output topic, while another one has the same key complete",
    Kind.UNEXPECTED: "Records exist that no run without faults wrote",
    Kind.REORDERED: "Records of a key are in a different order than without faults",
    Kind.STUCK: "The run did not end, or an open transaction holds back consumers of the output",
    Kind.CHANGED: "Records have other headers than without faults, or null instead of an empty value",
    Kind.UNFINISHED: "All instances ended with code 0 before the input was processed",
    Kind.REDELIVERED: "Records were written more than once, which the comparison or the promise allows",
    Kind.REJECTED: "Records are missing whose input was rejected, or reached the delivery limit",
    Kind.REFUSED: "The check refused the outputs",
}
VERDICT: Final = Rule("verdict", "The job is neither certified nor shown to be wrong", _VERDICTS)
KINDS: Final = {
    kind: Rule(kind.value.replace(" ", "-"), sentence, _VERDICTS) for kind, sentence in _SENTENCES.items()
}
"""Rules of the kinds of findings."""


def of_certificate(certificate: Certificate) -> list[Notice]:
    """An error for each finding of each failure, a warning for each lint of the runs without faults."""
    found = [
        _of_finding(failure, finding) for failure in certificate.failures for finding in failure.findings
    ]
    unfinished = [
        replace(_of_finding(failure, finding), level=WARNING)
        for failure in certificate.unfinished
        for finding in failure.findings
    ]
    return [
        *found,
        *unfinished,
        *_of_verdict(certificate),
        *of_occurrences(map(Occurrence, certificate.lints)),
    ]


def _of_verdict(certificate: Certificate) -> list[Notice]:
    """A notice for a verdict other than exactly once and failed."""
    verdict = certificate.verdict.value
    if verdict in ("clean", "failed"):
        return []
    unmet = [str(each) for each in certificate.unmet]
    message = certificate.not_judged or "\n".join(["missing:", *_some(unmet)])
    return [Notice(VERDICT, WARNING, verdict, message, {}, "verdict")]


def of_occurrences(occurrences: Iterable[Occurrence]) -> list[Notice]:
    """A warning for each lint of a trace."""
    return [_of_occurrence(each) for each in occurrences]


def rules(notices: Iterable[Notice]) -> list[Rule]:
    """The rules of all kinds of findings, and those of the lints among the notices."""
    return list(dict.fromkeys([*KINDS.values(), VERDICT, *(each.rule for each in notices)]))


def _of_finding(failure: Failure, finding: Finding) -> Notice:
    plan = failure.plan
    lines = [
        finding.sentence,
        *_some(finding.evidence),
        *([f"why: {each.sentence} ({each.link})" for each in failure.diagnosis] or ["why: unknown"]),
        f"again: odradek certify again {plan.id}",
    ]
    facts = {
        "plan_id": plan.id,
        "plan": [each.as_dict() for each in plan.injections],
        "moments": [str(each.moment) for each in plan.injections],
        "faults": [each.fault.name for each in plan.injections],
        "came_back": failure.came_back,
        "tried": failure.tried,
    }
    rule = KINDS[finding.kind]
    return Notice(
        rule, ERROR, f"{finding.kind.value}: {plan}", "\n".join(lines), facts, f"{rule.id}/{plan.id}"
    )


def _some(evidence: Sequence[str]) -> list[str]:
    more = len(evidence) - _EVIDENCE_MAX
    return [*evidence[:_EVIDENCE_MAX], *([f"and {more} more"] if more > 0 else [])]


def _of_occurrence(occurrence: Occurrence) -> Notice:
    lint = occurrence.lint
    facts = {"client": occurrence.client} if occurrence.client else {}
    lines = filter(None, [lint.sentence, lint.example])
    rule = Rule(lint.name, lint.name.replace("-", " "), lint.link)
    return Notice(rule, WARNING, occurrence.title, "\n".join(lines), facts, lint.name)
