"""A copy of the tree with one defect in it."""

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
    """A patch names text that its file does not have, or has more than once: the table must follow the code."""


def patched(mutant: Mutant) -> dict[str, str]:
    """The files that a mutant changes, as it wants them."""
    texts: dict[str, str] = {}
    for patch in mutant.patches:
        text = texts.get(patch.file) or (ROOT / patch.file).read_text()
        if text.count(patch.old) != 1:
            times = text.count(patch.old)
            raise NotThere(f"{mutant.name}: {patch.file} has this text {times} times, not once:\n{patch.old}")
        texts[patch.file] = text.replace(patch.old, patch.new)
    return texts


# Without the compiled core and modules: a defect is planted in Python.
IGNORED = shutil.ignore_patterns("__pycache__", "build", "compiled.*.so", "compiled")


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[Path]:
    """The root of a copy with the mutant in it (None: without any), as long as the block runs."""
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
