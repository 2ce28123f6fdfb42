"""Run a Python function as a job: ``python -m odradek.certify.jobs.call FILE FUNCTION bootstrap=HOST:PORT instance=1 ...``.

The function may have the parameters bootstrap, instance, run and data. Its module is imported as pytest would import it:
by its dotted name relative to the first parent directory without an ``__init__.py``.
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
    """The job command that calls this function. Raises ``ValueError`` if another process cannot import or call it."""
    name = function.__qualname__
    if not name.isidentifier():
        raise ValueError(
            f"{name}: a job must be a function at the top level of its module, so that another process can import it"
        )
    unknown = [each for each in inspect.signature(function).parameters if each not in NAMES]
    if unknown:
        raise ValueError(
            f"{name} has a parameter {unknown[0]}; a job may have the parameters {', '.join(NAMES)}"
        )
    file = Path(inspect.getfile(function)).resolve()
    return [sys.executable, "-m", __name__, str(file), name, *(f"{each}={{{each}}}" for each in NAMES)]


def found(file: Path, name: str) -> Callable[..., object]:
    """Import ``file`` as a module, and return the module's function ``name``."""
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
