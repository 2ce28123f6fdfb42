"""Functions that build the wheel of this checkout, for tests of the installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from odradek.spark.jars import locked
from tests.support.deadlines import TEST_S

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "compiled", "lab", "protocol", "proxy", "server", "storage", "tools", "odradek")
COMPILED = ROOT / ".cache" / "compiled"
"""The cache of compiled modules that all builds of tests share. A build that compiles locks the file beside it."""
QUICK = {"CC": str(ROOT / "tests" / "support" / "quick-cc"), "ODRADEK_KEPT": str(COMPILED)}
"""A compiler without optimisation: these tests only check that the compiled modules exist and work."""


def types_of(root: Path) -> list[Path]:
    """The .pxd files below a folder, which declare the types of compiled modules (ADR 25)."""
    return sorted(path for name in PACKAGES for path in (root / name).rglob("*.pxd"))


def is_of_python(types: Path) -> bool:
    """Whether the .pxd file ``types`` only describes classes of a module that stays interpreted."""
    return "cdef extern" in types.read_text("utf-8")


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=TEST_S, check=False, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def copy_of_the_sources(to: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "layouts.txt")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, to / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "build_backend.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, to / name)
    return to


def compiling() -> AbstractContextManager[None]:
    """Context manager: no other test process compiles modules, so that it then finds them in the cache."""
    COMPILED.mkdir(parents=True, exist_ok=True)
    return locked(COMPILED.with_name("compiled.lock"))


def built(sources: Path, out: Path, **variables: str) -> Path:
    """Build the wheel of a folder or of a source distribution. ``variables`` are additional environment variables."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
    with nullcontext() if "ODRADEK_PURE" in variables else compiling():
        run(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            *options,
            "--wheel-dir",
            out,
            sources,
            env={**os.environ, **QUICK, **variables},
        )
    [wheel] = out.glob("*.whl")
    return wheel
