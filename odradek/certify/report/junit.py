"""The certificate as JUnit XML: a test case for each cell of the matrix."""

from __future__ import annotations

from xml.etree import ElementTree

from odradek.certify.certificate import Certificate, Failure
from odradek.certify.outcome import Verdict
from odradek.certify.plans.exploration import Coverage
from odradek.certify.plans.plan import Cell
from odradek.printable import printable_lines


def junit(certificate: Certificate) -> str:
    suite = ElementTree.Element("testsuite", name="odradek certify", time=f"{certificate.took_s:.1f}")
    failures = {
        failure.plan.injections[0].cell: failure for failure in certificate.failures if len(failure.plan) == 1
    }
    _verdict(suite, certificate)
    for cell, state in certificate.cells.items():
        _case(suite, cell, state, failures.get(cell))
    for failure in certificate.failures:
        if len(failure.plan) > 1:
            case = ElementTree.SubElement(suite, "testcase", classname="plans", name=str(failure.plan))
            _failed(case, failure)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ElementTree.indent(suite)
    # XML allows no control characters, but clients' names and values may contain them.
    return printable_lines(ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)) + "\n"


def _verdict(suite: ElementTree.Element, certificate: Certificate) -> None:
    """Add the verdict as a test case: without it, the suite would pass for the verdicts "incomplete" and "no promise"."""
    case = ElementTree.SubElement(suite, "testcase", classname="certificate", name="verdict")
    if certificate.verdict not in (Verdict.CLEAN, Verdict.FAILED):
        element = ElementTree.SubElement(case, "error", message=certificate.verdict.value)
        element.text = certificate.not_judged or None


def _case(suite: ElementTree.Element, cell: Cell, state: Coverage, failure: Failure | None) -> None:
    kind, fault = cell
    case = ElementTree.SubElement(suite, "testcase", classname=fault, name=str(kind))
    if failure is not None:
        _failed(case, failure)
    elif state is Coverage.FAILED:
        ElementTree.SubElement(case, "failure", message="failed in a plan that another failure includes")
    elif state is not Coverage.CLEAN:
        ElementTree.SubElement(case, "skipped", message=state.value)


def _failed(case: ElementTree.Element, failure: Failure) -> None:
    sentences = [f"{each.kind.value}: {each.sentence}" for each in failure.findings]
    element = ElementTree.SubElement(case, "failure", message="; ".join(sentences), type=failure.kinds[0])
    lines = [line for each in failure.findings for line in each.evidence]
    lines += [f"why: {each.sentence}" for each in failure.diagnosis]
    element.text = "\n".join([*lines, f"odradek certify again '{failure.plan.as_json()}'"])
