"""Tests with a Spark session share a worker, and begin first."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARKED = "import pytest\npytestmark = pytest.mark.{}\n"
WHO = "def test_{}(worker_id): print('{} on', worker_id)\n"


def run(folder: Path, *arguments: str) -> str:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = spark\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.one_worker", "-rA", *arguments]
    command += ["--rootdir", str(folder), "-c", str(folder / "pytest.ini"), str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def test_one_worker_has_them_all_and_begins_with_them(tmp_path: Path):
    for name in "abcdef":
        marked = MARKED.format("spark") if name in "cf" else ""
        (tmp_path / f"test_{name}.py").write_text(
            marked + "".join(WHO.format(f"{name}{n}", f"{name}{n}") for n in range(4))
        )
    said = run(tmp_path, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    ran = re.findall(r"(\w)\d on (gw\d)", said)
    assert len(ran) == 24, said
    workers = {name: {worker for each, worker in ran if each == name} for name in "abcdef"}
    assert all(len(each) == 1 for each in workers.values())
    assert workers["c"] == workers["f"]
    [of_spark] = workers["c"]
    assert [name for name, worker in ran if worker == of_spark][:8] == ["c"] * 4 + ["f"] * 4


@pytest.mark.parametrize(
    ("marked", "said"), [(True, "1 passed"), (False, "not marked so: test_it.py::test_it")]
)
def test_a_test_that_takes_a_session_has_to_say_so(marked: bool, said: str, tmp_path: Path):
    fixture = "import pytest\n@pytest.fixture\ndef spark(): pass\n"
    mark = MARKED.format("spark") if marked else ""
    (tmp_path / "test_it.py").write_text(f"{mark}{fixture}def test_it(spark): pass\n")
    assert said in run(tmp_path)
