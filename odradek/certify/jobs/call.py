"""A Python function as a job: ``python -m odradek.certify.jobs.call FILE FUNCTION bootstrap=HOST:PORT instance=1 ...``.

The function takes, by their names, those of bootstrap, instance, run and data that it wants. Its module is imported as
pytest imports it: under the name that it has below the topmost folder without an ``__init__.py``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("bootstrap", "instance", "run", "data")


def command(function: Callable[..., object]) -> list[str]:
    """The command of a job that calls this function. ``ValueError`` if another process cannot find it, or not call it."""
    name = function.__qualname__
    if not name.isidentifier():
        raise ValueError(
            f"{name}: a job is a function at the top of its module, which another process can import"
        )
    unknown = [each for each in inspect.signature(function).parameters if each not in NAMES]
    if unknown:
        raise ValueError(f"{name} takes {unknown[0]}; a job is given {', '.join(NAMES)}")
    file = Path(inspect.getfile(function)).resolve()
    return [sys.executable, "-m", __name__, str(file), name, *(f"{each}={{{each}}}" for each in NAMES)]


def found(file: Path, name: str) -> Callable[..., object]:
    """The function of this name in this file."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    function: Callable[..., object] = getattr(importlib.import_module(".".join(parts)), name)
    return function


def call(function: Callable[..., object], values: Mapping[str, str]) -> None:
    given: dict[str, Any] = {**values, "instance": int(values["instance"])}
    function(**{name: given[name] for name in inspect.signature(function).parameters})


def main(arguments: list[str]) -> None:
    file, name, *said = arguments
    call(found(Path(file), name), dict(each.split("=", 1) for each in said))


if __name__ == "__main__":
    main(sys.argv[1:])
