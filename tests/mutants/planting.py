"""Copies of the source tree with one mutant (a planted defect) in them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.table import Mutant

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = (
    "broker",
    "compiled",
    "lab",
    "odradek",
    "protocol",
    "proxy",
    "server",
    "storage",
    "tools",
    "tests",
    "pyproject.toml",
)


class NotThere(AssertionError):
    """A patch's text does not occur in its file, or occurs more than once: table.py must be updated."""


def patched(mutant: Mutant) -> dict[str, str]:
    """The changed files of a mutant, with their new content."""
    texts: dict[str, str] = {}
    for patch in mutant.patches:
        text = texts.get(patch.file) or (ROOT / patch.file).read_text()
        if text.count(patch.old) != 1:
            times = text.count(patch.old)
            raise NotThere(f"{mutant.name}: {patch.file} has this text {times} times, not once:\n{patch.old}")
        texts[patch.file] = text.replace(patch.old, patch.new)
    return texts


# Without compiled modules: a mutant changes Python code.
IGNORED = shutil.ignore_patterns("__pycache__", "build", "compiled.*.so", "compiled")


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[Path]:
    """Context manager: yields the root of a copy of the tree, with the mutant in it if one is given."""
    texts = {} if mutant is None else patched(mutant)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=memory if memory.is_dir() else None) as directory:
        root = Path(directory)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=IGNORED)
            else:
                shutil.copy(source, root / name)
        for file, text in texts.items():
            (root / file).write_text(text)
        yield root
