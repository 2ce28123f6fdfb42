"""The jobs in examples/certify: those that are right are certified, those that are wrong are found, with the reason.

The certifier knows nothing of them but the command that starts them.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.certify import settings
from odradek.certify.certifier import Certificate, Certifier
from odradek.certify.faults import BY_NAME
from odradek.certify.lints import DOCS
from odradek.certify.moments import Moment
from odradek.certify.plan import Injection, Plan, from_json
from odradek.errors import OdradekError
from tests.support.deadlines import LONG_TEST_S

ROOT = Path(__file__).parents[3]
ZOO = ROOT / "examples" / "certify"
RECORDS = 60
BUDGET_S = 120.0
pytestmark = [pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]


@dataclass(frozen=True)
class Wrong:
    """A job, and what must be found."""

    name: str
    kinds: frozenset[str]
    """One of these at least."""
    diagnosis: str
    outputs: tuple[str, ...] = ("out",)


WRONG = [
    Wrong("offsets_outside", frozenset({"doubled", "lost"}), "offsets-outside"),
    Wrong("read_uncommitted", frozenset({"doubled", "unexpected"}), "read-uncommitted"),
    Wrong("weak_producer", frozenset({"doubled", "lost", "torn"}), "weak-producer", ("out", "journal")),
    Wrong("auto_commit", frozenset({"doubled", "lost"}), "offsets-outside"),
    Wrong("second_producer", frozenset({"doubled", "torn"}), "second-producer", ("out", "journal")),
    Wrong("no_rewind", frozenset({"lost"}), "no-rewind"),
    Wrong("swallowed", frozenset({"stuck"}), "fatal-error-swallowed"),
    Wrong("changing_id", frozenset({"stuck", "doubled"}), "changing-id"),
    Wrong("no_group_metadata", frozenset({"stuck", "doubled"}), "no-group-metadata"),
]
WITH_EACH_CHANGE = ("offsets_outside", "read_uncommitted", "weak_producer")


def certified(
    job: Path, directory: Path, outputs: tuple[str, ...] = ("out",), check: str | None = None, **more: object
) -> Certifier:
    lines = [f'{{"key": "k{number % 7}", "value": "v{number}"}}\n' for number in range(RECORDS)]
    (directory / "in.ndjson").write_text("".join(lines))
    options = {
        "job": [sys.executable, str(job), "{bootstrap}", "{instance}", "{data}"],
        "topic": ["in:2", *(f"{each}:2" for each in outputs)],
        "seed-records": ["in=in.ndjson"],
        "output": list(outputs),
        "check": check,
    }
    return Certifier(settings.workload(options, directory), **{"budget_s": BUDGET_S, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "job",
    [pytest.param(each, marks=[] if each.name in WITH_EACH_CHANGE else [pytest.mark.slow]) for each in WRONG],
    ids=lambda job: job.name,
)
def test_a_job_that_is_wrong_is_found_with_the_reason(job: Wrong, tmp_path: Path) -> None:
    certifier = certified(ZOO / "wrong" / f"{job.name}.py", tmp_path, job.outputs, failures_max=1)
    certificate = certifier.run()
    (failure,) = certificate.failures[:1]
    assert job.kinds & set(failure.kinds), failure
    assert failure.came_back > 1
    assert len(failure.plan) == 1
    said = {each.name for each in (*failure.diagnosis, *certificate.lints)}
    assert job.diagnosis in said
    again = certifier.again(from_json(failure.plan.as_json()), 1)
    assert again[0][1]


def test_a_job_that_is_right_is_certified(tmp_path: Path) -> None:
    """So many faults as there is time for: those that lose, double and fence most come first."""
    certificate = certified(ZOO / "right" / "copier.py", tmp_path, budget_s=20.0).run()
    assert certificate.failures == []
    assert certificate.runs > 2
    assert certificate.lints == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_job_that_is_right_is_certified_by_each_seed(seed: int, tmp_path: Path) -> None:
    certificate = certified(ZOO / "right" / "copier.py", tmp_path, seed=seed).run()
    assert certificate.failures == []


def test_a_check_takes_the_place_of_the_comparison(tmp_path: Path) -> None:
    certifier = certified(ZOO / "right" / "copier.py", tmp_path, budget_s=3.0, check="grep -q V1")
    assert certifier.run().is_clean
    with pytest.raises(OdradekError, match="without faults grep -q nothing ended with exit code 1"):
        certified(ZOO / "right" / "copier.py", tmp_path, budget_s=3.0, check="grep -q nothing").run()


def test_a_run_does_not_wait_for_a_fault_that_is_not_reached(tmp_path: Path) -> None:
    """One of two has struck, and the other one never will: the job is done all the same."""
    certifier = certified(ZOO / "right" / "copier.py", tmp_path)
    of_copier = (("transactional_id", "copier-1"),)
    plan = Plan(
        (
            Injection(Moment("EndTxn", of_copier, 1, "commit"), BY_NAME["kill-after"]),
            Injection(Moment("EndTxn", of_copier, 999, "commit"), BY_NAME["add-instance"]),
        )
    )
    ((run, findings),) = certifier.again(plan, 1)
    assert run.outputs.finished
    assert run.hits == [1, 0]
    assert findings == []


def test_no_job_says_what_is_wrong_with_it() -> None:
    """Found by the tool alone: nothing in a job is meant for it."""
    for job in ZOO.glob("*/*.py"):
        text = job.read_text(encoding="utf-8").lower()
        assert not re.search(r"odradek|certif|fault|wrong|bug|defect|doubled|lost", text), job


def test_each_lint_is_explained() -> None:
    page = (ROOT / DOCS).read_text(encoding="utf-8")
    lints = (ROOT / "odradek" / "certify" / "lints.py").read_text(encoding="utf-8")
    for name in re.findall(r'^\s+"([a-z]+(?:-[a-z]+)+)",$', lints, re.MULTILINE):
        assert f"### {name}\n" in page


def certificate_of(directory: Path) -> Certificate:
    return certified(ZOO / "right" / "copier.py", directory, budget_s=0.0).run()


def test_the_reports_are_written(tmp_path: Path) -> None:
    from odradek.certify import reports

    reports.write(certificate_of(tmp_path), tmp_path / "certificate")
    assert {each.name for each in (tmp_path / "certificate").iterdir()} == {
        "certificate.html",
        "certificate.json",
        "junit.xml",
    }
    with pytest.raises(ValueError, match="there is no plan 12345678"):
        reports.plan(tmp_path / "certificate", "12345678")
