"""Builds a folder with Odradek and its Python, for machines without Python: ``python release/folder.py FOLDER``.

The folder contains the interpreter that runs this program with its standard library, the packages of its environment that
the plain wheel needs, and the libraries that both are linked with, except the C library. ``FOLDER/odradek`` is the command.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
LEFT_OUT: Final = shutil.ignore_patterns(
    *("site-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo"),
    *("config-*", "*.a", "_tkinter*", "_test*", "pydoc_data", "*.pyx", "*.pxd"),
)
OF_EVERY_LINUX: Final = re.compile(r"(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|util)\.so)")
COMMAND: Final = f"""#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{VERSION}" -I -c "import sys; sys.argv[0] = 'odradek'; from odradek.program import main; main()" "$@"
"""


def make(folder: Path) -> None:
    """Create the folder. Raises FileExistsError if it exists."""
    library = folder / "lib" / VERSION
    shutil.copytree(sysconfig.get_paths()["stdlib"], library, ignore=LEFT_OUT)
    packages = library / "site-packages"
    packages.mkdir()
    for file, place in files_of("odradek"):
        target = packages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)  # with its time, because bytecode is valid only for the time of its source
    interpreter = folder / "bin" / VERSION
    interpreter.parent.mkdir()
    shutil.copy(Path(sys.executable).resolve(), interpreter)
    for linked in [interpreter, *library.rglob("*.so")]:
        for needed in libraries(linked):
            if not (folder / "lib" / needed.name).exists():
                shutil.copy(needed, folder / "lib" / needed.name)
    subprocess.run(
        ["strip", "--strip-unneeded", *map(str, [interpreter, *folder.rglob("*.so*")])],
        check=False,
        stderr=subprocess.DEVNULL,
    )
    command = folder / "odradek"
    command.write_text(COMMAND)
    command.chmod(0o755)
    subprocess.run([command, "--version"], check=True)


def files_of(name: str, seen: set[str] | None = None) -> Iterator[tuple[Path, Path]]:
    """(file, path below site-packages) for the files of a distribution and of its dependencies without extras."""
    seen = set() if seen is None else seen
    if name in seen:
        return
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:  # a dependency for other versions of Python, or other systems
        return
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        if ".." not in file.parts and path.suffix not in (".pyx", ".pxd") and path.is_file():
            yield path, Path(file)
    for requirement in found.requires or ():
        if "extra ==" not in requirement and (needed := re.match(r"[\w.-]+", requirement)):
            yield from files_of(needed[0].lower(), seen)


def libraries(binary: Path) -> Iterator[Path]:
    """The libraries that a binary is linked with, as found on this machine."""
    said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"=> (/\S+)", said):
        if not OF_EVERY_LINUX.search(path):
            yield Path(path)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
