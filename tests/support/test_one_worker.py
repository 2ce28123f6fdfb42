"""Tests that share a Spark session run in one worker, those of the audit in another, and tests that start Spark in a third.

All these kinds run first.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.inner_pytest import run_pytest

pytestmark = pytest.mark.more

MARKED = "import pytest\npytestmark = pytest.mark.{}\n"
WHO = "def test_{}(worker_id): print('{} on', worker_id)\n"


def run(folder: Path, cases: Mapping[str, str], *arguments: str) -> str:
    ini = "markers =\n  spark\n  spark_apart\n"
    ended = run_pytest("tests.support.one_worker", folder, cases, "-rA", *arguments, ini=ini)
    return ended.stdout + ended.stderr


def test_each_kind_has_one_worker_which_begins_with_it(tmp_path: Path):
    marks = {"c": "spark", "e": "spark_apart", "f": "spark", "g": "spark", "h": "spark_apart", "i": "spark"}
    cases = {}
    for name in "abcdefghi":
        marked = MARKED.format(marks[name]) if name in marks else ""
        module = f"audit_{name}" if name in "gi" else name
        cases[module] = marked + "".join(WHO.format(f"{name}{n}", f"{name}{n}") for n in range(4))
    said = run(tmp_path, cases, "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
    ran = re.findall(r"(\w)\d on (gw\d)", said)
    assert len(ran) == 36, said
    workers = {name: {worker for each, worker in ran if each == name} for name in "abcdefghi"}
    assert all(len(each) == 1 for each in workers.values())
    for first, second in ("cf", "gi", "eh"):
        [worker] = workers[first] | workers[second]
        assert [name for name, its in ran if its == worker][:8] == [first] * 4 + [second] * 4
    assert len(workers["c"] | workers["g"] | workers["e"]) == 3


def test_files_that_build_packages_follow(tmp_path: Path):
    cases = {name: WHO.format(name, name) for name in ("a", "packaging", "spark", "wheel")}
    cases["spark"] = MARKED.format("spark") + cases["spark"]
    said = run(tmp_path, cases, "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
    assert re.findall(r"^(\w+) on gw0", said, re.MULTILINE) == ["spark", "packaging", "wheel", "a"]


def test_a_file_whose_tests_wait_is_distributed_in_parts(tmp_path: Path):
    cases = {
        name: "".join(WHO.format(f"{name}{n}", f"{name}{n}") for n in range(12))
        for name in ("recorded", "other")
    }
    said = run(tmp_path, cases, "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
    ran = re.findall(r"^(recorded|other)\d+ on (gw\d)", said, re.MULTILINE)
    assert len(ran) == 24, said
    workers = {name: {worker for each, worker in ran if each == name} for name in cases}
    assert len(workers["other"]) == 1 < len(workers["recorded"])


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ("spark", "1 passed"),
        ("spark_apart", "without the mark 'spark': test_it.py::test_it"),
        ("", "without the mark 'spark': test_it.py::test_it"),
    ],
)
def test_a_test_that_takes_a_session_has_to_say_so(marked: str, said: str, tmp_path: Path):
    fixture = "import pytest\n@pytest.fixture\ndef spark(): pass\n"
    mark = MARKED.format(marked) if marked else ""
    assert said in run(tmp_path, {"it": f"{mark}{fixture}def test_it(spark): pass"})
