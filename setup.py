"""Where each package of the checkout lies in a wheel, and the compiled core; all else stands in pyproject.toml.

`odradek` stays where it is. The packages of the server go into the folder `odradek/_server`, because their names
(`broker`, `protocol`, `storage`, `tools`) are names that users give to packages of their own (docs/adr/0014). pyproject.toml
cannot say this: it can search for packages or list them, but it cannot rename those that a search has found.

The compiled core (docs/adr/0022) is optional: without a compiler, or with ODRADEK_PURE=1, the package is pure Python.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SERVER = ("broker", "protocol", "storage", "tools")
CORE = Path("protocol/c")
# Where compiled modules lie, in a checkout and in a wheel: each under its full name (storage/modules.py).
MODULES = "storage/compiled"
DIRECTIVES = {
    "language_level": 3,
    # What is None has no attribute in C either.
    "nonecheck": True,
    "overflowcheck": True,
    "annotation_typing": False,
    "binding": False,
    "embedsignature": False,
    "always_allow_keywords": True,
}
# The core counts in 128 bits, and turns bytes around: a compiler or processor for which it is not made builds none.
PROBE = """
#include <Python.h>
__int128 number;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error
#endif
"""


def found(*names: str) -> list[str]:
    """These packages and all below them."""
    return find_packages(include=[pattern for name in names for pattern in (name, f"{name}.*")])


class FreshBuild(build_py):
    """setuptools leaves `build/lib` behind and packs it again: a module that was moved would stay in wheels for ever."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def compiles() -> bool:
    """Whether the compiler that would compile the core compiles a few lines."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        command = build_ext(Distribution({"ext_modules": [Extension("probe", [str(source)])]}))
        command.build_temp = command.build_lib = folder
        try:
            command.ensure_finalized()
            command.run()
        except Exception:  # no compiler, no Python.h: whatever it is, the package is then pure Python
            return False
    return True


def compiled_core() -> list[Extension]:
    """The core, if it can be built here; a wheel is for one platform only if it has it."""
    if sys.implementation.name != "cpython" or os.name == "nt" or os.environ.get("ODRADEK_PURE") == "1":
        return []
    if not compiles():
        print(
            "no compiled core: a C compiler and Python.h are missing, so the package is pure Python",
            file=sys.stderr,
        )
        return []
    sources, headers = sorted(CORE.glob("*.c")), sorted(CORE.glob("*.h"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, *headers])).hexdigest()
    return [
        Extension(
            "odradek._server.protocol.compiled",
            [path.as_posix() for path in sources],
            depends=[path.as_posix() for path in headers],
            define_macros=[("SOURCES", f'"{digest}"')],
            # Without paths of this machine in it, the same sources give the same bytes.
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall"],
            optional=True,
        )
    ]


def typed_modules() -> list[Path]:
    """The modules that a file of types (``.pxd``) stands beside, but for those that it only describes."""
    return sorted(
        path.with_suffix(".py")
        for name in SERVER
        for path in Path(name).rglob("*.pxd")
        if "cdef extern" not in path.read_text("utf-8")
    )


def compiled_modules() -> list[Extension]:
    """The same Python, compiled by Cython (docs/adr/0025)."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [
        Extension(
            ".".join(path.with_suffix("").parts),
            [path.as_posix()],
            # What Cython would teach these modules about its coroutines is imported with them, at each start.
            define_macros=[(f"CYTHON_PATCH_{name}", "0") for name in ("INSPECT", "ASYNCIO", "ABC")],
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
            optional=True,
        )
        for path in typed_modules()
    ]
    made: list[Extension] = cythonize(
        extensions,
        compiler_directives=DIRECTIVES,
        build_dir="build/modules",
        nthreads=os.cpu_count() or 1,
        quiet=True,
    )
    for each in made:
        # Beside their sources Python would never import these again.
        each.name = f"odradek._server.{MODULES.replace('/', '.')}.{each.name.replace('.', '__')}"
    return made


class BuildCore(build_ext):
    """In a checkout, modules that are compiled no more go."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = os.cpu_count()

    def copy_extensions_to_source(self) -> None:
        shutil.rmtree(MODULES, ignore_errors=True)
        Path(MODULES).mkdir()
        super().copy_extensions_to_source()


setup(
    packages=[*found("odradek"), *(f"odradek._server.{name}" for name in found(*SERVER))],
    package_dir={f"odradek._server.{name}": name for name in SERVER},
    ext_modules=core + compiled_modules() if (core := compiled_core()) else [],
    cmdclass={"build_py": FreshBuild, "build_ext": BuildCore},
)
