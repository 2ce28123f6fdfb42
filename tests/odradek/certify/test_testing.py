"""Certifying in a test: functions as jobs, and the fixture ``odradek_certify``."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from odradek.certify.jobs.call import call, command, found
from odradek.certify.testing import NotExactlyOnce, certify
from tests.odradek.certify.zoo import PATIENT_S, ROOT, ZOO
from tests.support.deadlines import LONG_TEST_S


def a_job(bootstrap: str, instance: int) -> None:
    print(f"{instance} at {bootstrap}")


def of_no_use(broker: str) -> None:
    pass


def test_another_process_calls_the_function_with_what_it_takes() -> None:
    words = [each.format(bootstrap="b:1", instance=2, run="r", data="/d") for each in command(a_job)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2 at b:1\n"


def test_its_module_is_imported_under_the_name_that_pytest_gives_it() -> None:
    assert found(Path(__file__), "a_job") is a_job


def test_all_values_can_be_asked_for() -> None:
    told: dict[str, object] = {}

    def job(data: str, run: str) -> None:
        told.update(data=data, run=run)

    call(job, {"bootstrap": "b:1", "instance": "1", "run": "r", "data": "/d"})
    assert told == {"data": "/d", "run": "r"}


def test_a_function_that_no_process_can_call_is_refused() -> None:
    with pytest.raises(ValueError, match="another process can import"):
        command(lambda bootstrap: None)
    with pytest.raises(
        ValueError,
        match="of_no_use has a parameter broker; a job may have the parameters bootstrap, instance, run, data",
    ):
        command(of_no_use)


def test_an_option_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown option: budgets \\(known: topic, "):
        certify("job", {}, "out", directory=tmp_path, budgets="1s")


RECORDS = {"in": [{"key": f"k{number % 3}", "value": f"v{number}"} for number in range(30)]}


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_job_is_certified_and_one_that_is_wrong_is_a_failed_assertion(tmp_path: Path) -> None:
    of = partial(certify, records=RECORDS, output="out", directory=tmp_path)
    right, wrong = ([sys.executable, str(ZOO / each), "{bootstrap}", "{instance}"] for each in JOBS)
    assert of(right, budget="1s", accept="incomplete").failures == []
    with pytest.raises(NotExactlyOnce, match="again: odradek certify again ") as failed:
        of(wrong, failures=1, budget=f"{PATIENT_S:g}s", report="report")
    (failure,) = failed.value.certificate.failures
    odradek = Path(sys.executable).parent / "odradek"
    again: list[str | Path] = [odradek, "certify", "--report", "report", "again", failure.plan.id, "--json"]
    tried = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert tried.returncode == 1, tried.stderr
    assert json.loads(tried.stdout)["findings"]


JOBS = ("right/copier.py", "wrong/offsets_outside.py")
