"""A folder with Odradek and its Python, for machines that have none: ``python release/folder.py FOLDER``.

It is made of what runs this: the interpreter and its standard library, the packages of the environment that the plain wheel
needs, and the libraries that both are linked with, but for the C library. ``FOLDER/odradek`` is the command.
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
    """Raises where the folder is there already."""
    library = folder / "lib" / VERSION
    shutil.copytree(sysconfig.get_paths()["stdlib"], library, ignore=LEFT_OUT)
    packages = library / "site-packages"
    packages.mkdir()
    for file, place in files_of("odradek"):
        target = packages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)  # bytecode is valid by the time of its source
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
    """The files of a distribution and of all that it needs without an extra, each with its place in site-packages."""
    seen = set() if seen is None else seen
    if name in seen:
        return
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:  # for other versions of Python, or other systems
        return
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        if ".." not in file.parts and path.suffix not in (".pyx", ".pxd") and path.is_file():
            yield path, Path(file)
    for requirement in found.requires or ():
        if "extra ==" not in requirement and (needed := re.match(r"[\w.-]+", requirement)):
            yield from files_of(needed[0].lower(), seen)


def libraries(binary: Path) -> Iterator[Path]:
    """What it is linked with, as this machine finds it."""
    said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"=> (/\S+)", said):
        if not OF_EVERY_LINUX.search(path):
            yield Path(path)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
