"""Which core is in use (compiled or Python), and that both are tested."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiled.finder import compiled_files
from protocol.core import CORE, TWINS, compiled
from tests.support.deadlines import HANG_S, TEST_S

ROOT = Path(__file__).parents[2]


def core_in(**variables: str) -> str:
    """The core (compiled or Python) that a new process with these environment variables uses."""
    return subprocess.run(
        [sys.executable, "-c", "from protocol.core import CORE; print(CORE)"],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name != "ODRADEK_PURE"}, **variables},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_a_variable_asks_for_pure_python():
    assert core_in(ODRADEK_PURE="1") == "pure Python"
    if compiled is not None:
        assert CORE == core_in() == core_in(ODRADEK_PURE="0") == "compiled core"


@pytest.mark.skipif(compiled is None, reason="there is no compiled core")
def test_the_core_was_built_from_the_sources_that_are_here():
    assert compiled is not None
    folder = ROOT / "protocol" / "c"
    sources = [*sorted(folder.glob("*.c")), *sorted(folder.glob("*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    assert digest == compiled.SOURCES, "make .venv/.dev rebuilds the core"


@pytest.mark.skipif(compiled is None, reason="there is no compiled core")
def test_each_twin_is_the_cores_and_python_s_is_kept():
    for name, python in TWINS.items():
        assert getattr(compiled, name) is not python


@pytest.mark.slow
@pytest.mark.skipif(compiled is None, reason="these tests are running without a compiled core")
def test_all_tests_of_this_folder_hold_in_pure_python_too():
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--tier",
                "test",
                "tests/protocol",
            )
        ],
        cwd=ROOT,
        env={**os.environ, "ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=TEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_broker_says_what_of_it_is_compiled(pure: str):
    with subprocess.Popen(
        [sys.executable, "-m", "server", "--port", "0", "--ends-with-stdin"],
        cwd=ROOT,
        env={**os.environ, "ODRADEK_PURE": pure},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        started = next(line for line in map(json.loads, process.stdout) if line["event"] == "started")
        process.stdin.close()
        process.stdout.read()
        assert process.wait(HANG_S) == 0
    has_modules = pure == "0" and compiled_files()
    assert started["core"] == core_in(ODRADEK_PURE=pure) + (" and modules" if has_modules else "")
