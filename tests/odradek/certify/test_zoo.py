"""The jobs in examples/certify: correct jobs are certified, and wrong jobs are found, with the cause.

The certifier knows only the command that starts a job. This file has the jobs in Python, and checks of all jobs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.certify.certificate import Certificate
from odradek.certify.lints import DOCS
from odradek.certify.outcome import Verdict
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Injection, Plan
from odradek.certify.report.text import summary
from tests.odradek.certify.zoo import (
    JOBS,
    JOBS_BEYOND,
    LETTERS,
    RECORDS,
    ROOT,
    ZOO,
    Wrong,
    certified,
    find,
    python,
    shared,
)
from tests.odradek.certify.zoo_jobs import JOBS as SOAK
from tests.odradek.certify.zoo_jobs import OF_PYTHON, is_too_slow
from tests.support.deadlines import LONG_TEST_S
from tests.support.jvm import artifacts

pytestmark = [pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]
COPIER = "right/copier"


QUICK = ("share_resent",)
"""Wrong jobs that are tested with each change, beside offsets_outside (`test_command.py`). The soak tests all of them
(`tests.odradek.certify.soak`)."""


@pytest.mark.parametrize("job", [each for each in OF_PYTHON if each.name in QUICK], ids=lambda job: job.name)
def test_a_job_that_is_wrong_is_found_with_the_reason(job: Wrong, tmp_path: Path) -> None:
    find(job, python(f"wrong/{job.name}"), tmp_path)


@pytest.mark.parametrize(
    ("nodes", "more"), [(1, {"budget_s": 6.0}), (3, {"budget_s": 6.0}), (1, {"budget_s": 4.0, "stages": 2})]
)
def test_a_job_that_is_right_is_certified(nodes: int, more: dict[str, Any], tmp_path: Path) -> None:
    """A correct job is certified with as many faults as fit into the time.

    The faults that most often cause lost records, duplicates or fencing come first.
    """
    certificate = certified(python(COPIER), tmp_path, nodes=nodes, **more).run()
    assert certificate.failures == []
    assert certificate.runs > 2  # the first plan is tried even on a slow machine
    assert certificate.lints == []


def test_a_member_of_a_share_group_is_certified(tmp_path: Path) -> None:
    """Its verdict is at least once: outputs of records that the group delivered again may be duplicated."""
    certificate = certified(python("right/share_copier"), tmp_path, budget_s=6.0, options=shared()).run()
    assert certificate.failures == [], summary(certificate)
    assert (certificate.promise, certificate.lints) == ("at least once", [])
    assert certificate.verdict is Verdict.INCOMPLETE  # and not "no promise"
    assert certificate.runs > 2


def test_dead_letters_are_outputs_that_can_be_expected(tmp_path: Path) -> None:
    letters = shared(f"errors.deadletterqueue.topic.name={LETTERS}")
    job = python("right/share_letters")
    outputs = ("out", LETTERS)
    certificate = certified(job, tmp_path, outputs, budget_s=5.0, options=letters, partitions=1).run()
    assert certificate.failures == [], summary(certificate)
    told = tmp_path / "told.ndjson"
    lines = [
        json.dumps({"topic": "out", "key": f"k{number % 7}", "value": f"V{number}"})
        for number in range(RECORDS)
        if number % 10 != 7
    ]
    told.write_text("\n".join(lines))
    refused = certified(
        job, tmp_path, outputs, expect=told.name, options=letters, partitions=1, budget_s=0.0
    ).run()
    assert (
        "without faults: 6 records that no run without faults wrote\ndlq.copier: null" in refused.not_judged
    )


def test_locks_that_run_out_without_any_fault(tmp_path: Path) -> None:
    is_too_slow(1, tmp_path)


def test_a_check_replaces_the_comparison(tmp_path: Path) -> None:
    certifier = certified(python(COPIER), tmp_path, budget_s=3.0, check="grep -q V1")
    assert certifier.run().failures == []
    refused = certified(python(COPIER), tmp_path, budget_s=3.0, check="grep -q nothing").run()
    assert refused.verdict is Verdict.NOT_JUDGED
    assert "without faults grep -q nothing ended with exit code 1" in refused.not_judged


def test_what_is_right_can_be_said_in_a_file(tmp_path: Path) -> None:
    told = tmp_path / "told.ndjson"
    lines = [f'{{"key": "k{number % 7}", "value": "V{number}"}}' for number in range(RECORDS)]
    told.write_text("\n".join(lines))
    assert (
        certified(python(COPIER), tmp_path, budget_s=0.0, expect=told.name).run().verdict
        is Verdict.INCOMPLETE
    )
    told.write_text("\n".join([*lines, '{"key": "k1", "value": "V100"}']))
    refused = certified(python(COPIER), tmp_path, expect=told.name).run()
    assert "without faults: 1 record missing\nout: key k1, V100 " in refused.not_judged


def test_a_run_does_not_wait_for_a_fault_that_is_not_reached(tmp_path: Path) -> None:
    """A run ends without its second fault if the job never sends the request at which this fault is due."""
    certifier = certified(python(COPIER), tmp_path)
    of_copier = (("transactional_id", "copier-1"),)
    plan = Plan(
        (
            Injection(Moment("EndTxn", of_copier, 1, "commit"), BY_NAME["kill-after"]),
            Injection(Moment("EndTxn", of_copier, 999, "commit"), BY_NAME["add-instance"]),
        )
    )
    ((run, findings, _),) = certifier.again(plan, 1)
    assert run.outputs.finished
    assert run.hits == [1, 0]
    assert findings == []


def test_no_job_says_what_is_wrong_with_it() -> None:
    """The jobs contain no hints at their mistakes: the certifier finds the mistakes by itself."""
    for job in (*JOBS, *JOBS_BEYOND):
        text = job.read_text(encoding="utf-8").lower()
        text = re.sub(
            r"odradek\.exactly_once|from odradek\.spark|odradek_(postgres|http|data|port)", "", text
        )
        assert not re.search(r"odradek|certif|(?<!de)fault|wrong|bug|defect|doubled|duplicated|lost", text), (
            job
        )


def test_each_job_is_in_the_table() -> None:
    page = (ROOT / "examples" / "certify" / "README.md").read_text(encoding="utf-8")
    for job in JOBS:
        assert f"({job.relative_to(ROOT / 'examples' / 'certify').as_posix()})" in page


def test_the_jars_of_the_jobs_in_java_are_those_of_the_other_tests() -> None:
    said = (ZOO / "java" / "pom.xml").read_text(encoding="utf-8")
    found = re.findall(
        r"<groupId>(.*)</groupId>\s*<artifactId>(.*)</artifactId>\s*<version>(.*)</version>", said
    )
    assert [":".join(each) for each in found[1:]] == artifacts("streams")


def test_each_job_is_tried_in_the_soak() -> None:
    tried = {each.name.removeprefix("right-") for each in SOAK}
    programs = {each.parent.name if each.name == "main.go" else each.stem for each in JOBS}
    assert programs - tried == set()


def test_each_lint_is_explained() -> None:
    page = (ROOT / DOCS).read_text(encoding="utf-8")
    folder = ROOT / "odradek" / "certify"
    lints = "".join(each.read_text(encoding="utf-8") for each in folder.glob("*lints.py"))
    for name in re.findall(r'(?:^ +|Final = )"([a-z]+(?:-[a-z]+)+)",?$', lints, re.MULTILINE):
        assert f"### {name}\n" in page


def certificate_of(directory: Path) -> Certificate:
    return certified(python(COPIER), directory, budget_s=0.0).run()


def test_a_plan_that_there_is_not_is_named(tmp_path: Path) -> None:
    from odradek.certify import reports

    reports.write(certificate_of(tmp_path), tmp_path / "certificate")
    with pytest.raises(ValueError, match="unknown plan: 12345678"):
        reports.plan(tmp_path / "certificate", "12345678")
