"""Builds the package: the place of each package in a wheel, and the compiled parts. The rest is in pyproject.toml.

`odradek` keeps its place. The packages of the server are moved to the folder `odradek/_server`, because users may have
packages with their names (`broker`, `protocol`, `storage`, `tools`; docs/adr/0014). pyproject.toml cannot do that: it can
search for packages or list them, but cannot rename the ones that it found.

The compiled core (docs/adr/0022) is optional: without a compiler, or with ODRADEK_PURE=1, the package is pure Python.
`build_backend.py` translates the hot modules (docs/adr/0025).
"""

import hashlib
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from setuptools import Distribution, Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # the build process does not have this folder
import build_backend
from build_backend import HotModule

SERVER = ("broker", "compiled", "lab", "protocol", "proxy", "server", "storage", "tools")
CORE = Path("protocol/c")
# The folder of compiled modules, in a checkout and in a wheel. Each file has the module's full name (compiled/finder.py).
MODULES = "compiled/modules"
KEPT = Path(os.environ.get("ODRADEK_KEPT", ".cache/compiled"))
KEPT_FILES = 200
# The core needs 128-bit integers and a little-endian processor. Otherwise it is not built.
PROBE = """
#include <Python.h>
__int128 number;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error
#endif
"""


def found(*names: str) -> list[str]:
    """These packages and all packages below them."""
    return find_packages(include=[pattern for name in names for pattern in (name, f"{name}.*")])


class FreshBuild(build_py):
    """Build command that removes `build/lib` first: setuptools would pack old files, such as moved modules, too."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def compiles() -> bool:
    """Whether the compiler for the core compiles a short program."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(PROBE)
        command = build_ext(Distribution({"ext_modules": [Extension("probe", [str(source)])]}))
        command.build_temp = command.build_lib = folder
        try:
            command.ensure_finalized()
            command.run()
        except Exception:  # no compiler, no Python.h, or anything else: then the package is pure Python
            return False
    return True


def compiled_core() -> list[Extension]:
    """The compiled core; empty if it cannot be built here. With it the wheel is for one platform, else for any."""
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
            # No paths of this machine, so that the same sources give the same bytes.
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall"],
            optional=True,
        )
    ]


def compiled_modules() -> list[Extension]:
    """The hot modules (docs/adr/0025). Those with the longest source come first, since they take longest."""
    modules = build_backend.hot_modules()
    if not build_backend.has_cython() and not all(module.generated.exists() for module in modules):
        return []
    return [
        Extension(
            # Not beside their sources, which Python would then never import.
            f"odradek._server.{MODULES.replace('/', '.')}.{module.name.replace('.', '__')}",
            [module.source.as_posix()],
            # Without these, Cython would import asyncio and others at each start, to register its coroutines there.
            define_macros=[(f"CYTHON_PATCH_{name}", "0") for name in ("INSPECT", "ASYNCIO", "ABC")],
            # -O2 saves 1 % of a request's instructions, but takes twice as long.
            extra_compile_args=["-O1", "-g0", "-w", "-fvisibility=hidden"],
            optional=True,
        )
        for module in sorted(modules, key=lambda module: -module.source.stat().st_size)
    ]


class BuildCore(build_ext):
    """Compiles with every processor: while Cython translates one module, others are compiled.

    Compiled files are cached (``KEPT``) under a hash of all their inputs, so that a wheel, an editable installation and the
    next wheel compile the same sources only once. In a checkout, files of modules that are no longer compiled are removed.
    """

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = os.cpu_count()
        self.translating = threading.Lock()

    def build_extension(self, extension: Extension) -> None:
        [first, *_] = map(Path, extension.sources)
        if first.suffix == ".c":
            super().build_extension(extension)
            return
        module = HotModule(first)
        made = Path(self.get_ext_fullpath(extension.name))
        how = [*self.compiler.compiler_so, *self.compiler.linker_so, *extension.extra_compile_args]
        kept = KEPT / hashlib.sha256("\0".join([module.digest, made.name, *how]).encode()).hexdigest()
        if not kept.exists():
            extension.sources = [str(module.generated)]
            if not module.generated.exists():
                with self.translating:  # Cython has global state
                    extension.sources = [build_backend.translated(module)]
            super().build_extension(extension)
            keep(made, kept)
        else:
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept, made)
            shutil.copymode(kept, made)

    def copy_extensions_to_source(self) -> None:
        shutil.rmtree(MODULES, ignore_errors=True)
        Path(MODULES).mkdir()
        Path(MODULES, "layouts.txt").write_text(build_backend.layouts(), "utf-8")
        super().copy_extensions_to_source()


def keep(made: Path, kept: Path) -> None:
    """Copy ``made`` to ``kept`` in the cache. Of the files in the cache, the newest ``KEPT_FILES`` stay."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    shutil.copy(made, unfinished)
    unfinished.replace(kept)
    for old in sorted(kept.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_FILES]:
        old.unlink(missing_ok=True)


class WithGenerated(sdist):
    """A source distribution with the C files of Cython, so that building from it needs a compiler, but no Cython."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        if os.environ.get("ODRADEK_PURE") == "1" or not build_backend.has_cython():
            return
        for module in build_backend.hot_modules():
            target = Path(base_dir, module.generated)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(build_backend.translated(module), target)


# setuptools is called three times, but builds only in the last call.
DESCRIBED_ONLY = {"egg_info", "dist_info", "sdist"}

builds = not DESCRIBED_ONLY.intersection(sys.argv)
setup(
    packages=[*found("odradek"), *(f"odradek._server.{name}" for name in found(*SERVER))],
    package_dir={f"odradek._server.{name}": name for name in SERVER},
    ext_modules=core + compiled_modules() if builds and (core := compiled_core()) else [],
    cmdclass={"build_py": FreshBuild, "build_ext": BuildCore, "sdist": WithGenerated},
)
