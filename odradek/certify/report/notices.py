"""What continuous integration shows of a certificate or of a trace: each finding and each lint, as one notice.

SARIF (`sarif`) and the annotations of GitHub (`github`) are written from notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from odradek.certify.judging.findings import Finding, Kind
from odradek.certify.linting import Sight
from odradek.certify.lints import DOCS

if TYPE_CHECKING:
    # At run time these bring packages of the extra, which the lints alone do not need.
    from odradek.certify.certificate import Certificate, Failure

ERROR: Final = "error"
WARNING: Final = "warning"
_VERDICTS: Final = f"{DOCS}#verdicts"
_EVIDENCE_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """What notices of one kind have in common."""

    id: str
    """The kind of a finding or the name of a lint, with hyphens."""
    sentence: str
    link: str
    """To the page and section that explains it, from the root of the project."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to show."""

    rule: Rule
    level: str
    """`ERROR` or `WARNING`."""
    title: str
    """One line."""
    message: str
    """One or more lines."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a finding: plan, plan_id, moments, faults, came_back, tried."""
    identity: str = ""
    """The same for the same thing in another run; empty where that is not known."""


_SENTENCES: Final = {
    Kind.LOST: "Records that a run without faults has are missing",
    Kind.DUPLICATED: "Records are there more than once",
    Kind.TORN: "Records are missing in one output topic, while another one has the same key complete",
    Kind.UNEXPECTED: "Records are there that no run without faults has",
    Kind.REORDERED: "Records of a key are in another order than without faults",
    Kind.STUCK: "The run came to no end, or an open transaction holds up readers of the output",
    Kind.CHANGED: "Records are there with other headers, or null in place of an empty value",
    Kind.UNFINISHED: "All instances ended with code 0 before the input was done",
    Kind.REDELIVERED: "Records are there more than once, which the comparison allows",
    Kind.REFUSED: "The check refuses the outputs",
}
VERDICT: Final = Rule("verdict", "The job is neither certified nor shown to be wrong", _VERDICTS)
KINDS: Final = {
    kind: Rule(kind.value.replace(" ", "-"), sentence, _VERDICTS) for kind, sentence in _SENTENCES.items()
}
"""The rule of each kind of finding."""


def of_certificate(certificate: Certificate) -> list[Notice]:
    """Each finding of each failure is an error, each lint of the run without faults a warning."""
    found = [
        _of_finding(failure, finding) for failure in certificate.failures for finding in failure.findings
    ]
    unfinished = [
        replace(_of_finding(failure, finding), level=WARNING)
        for failure in certificate.unfinished
        for finding in failure.findings
    ]
    return [*found, *unfinished, *_of_verdict(certificate), *of_sights(map(Sight, certificate.lints))]


def _of_verdict(certificate: Certificate) -> list[Notice]:
    """A verdict that is neither exactly once nor a failure."""
    verdict = certificate.verdict.value
    if verdict in ("clean", "failed"):
        return []
    unmet = [str(each) for each in certificate.unmet]
    message = certificate.not_judged or "\n".join(["missing:", *_some(unmet)])
    return [Notice(VERDICT, WARNING, verdict, message, {}, "verdict")]


def of_sights(sights: Iterable[Sight]) -> list[Notice]:
    """Each lint of a trace is a warning."""
    return [_of_sight(each) for each in sights]


def rules(notices: Iterable[Notice]) -> list[Rule]:
    """Those of all kinds of findings, and those of the lints among the notices."""
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


def _of_sight(sight: Sight) -> Notice:
    lint = sight.lint
    facts = {"client": sight.client} if sight.client else {}
    lines = filter(None, [lint.sentence, lint.example])
    rule = Rule(lint.name, lint.name.replace("-", " "), lint.link)
    return Notice(rule, WARNING, sight.title, "\n".join(lines), facts, lint.name)
