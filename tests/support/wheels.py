"""Functions that build the wheel of this checkout, for tests of the installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.deadlines import TEST_S

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "compiled", "lab", "protocol", "proxy", "server", "storage", "tools", "odradek")
QUICK = {"CC": str(ROOT / "tests" / "support" / "quick-cc")}
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


def built(sources: Path, out: Path, **variables: str) -> Path:
    """Build the wheel of a folder or of a source distribution."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
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
