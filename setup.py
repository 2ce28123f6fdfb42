"""Where each package of the checkout lies in a wheel, and the compiled core; all else stands in pyproject.toml.

`odradek` stays where it is. The packages of the server go into the folder `odradek/_server`, because their names
(`broker`, `protocol`, `storage`, `tools`) are names that users give to packages of their own (docs/adr/0014). pyproject.toml
cannot say this: it can search for packages or list them, but it cannot rename those that a search has found.

The compiled core (docs/adr/0022) is optional: without a compiler, or with ODRADEK_PURE=1, the package is pure Python.
How the hot modules are compiled (docs/adr/0025) stands in `build_backend.py`.
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # not there in the process of a build
import build_backend
from build_backend import HotModule

SERVER = ("broker", "compiled", "lab", "protocol", "proxy", "server", "storage", "tools")
CORE = Path("protocol/c")
# Where compiled modules lie, in a checkout and in a wheel: each under its full name (compiled/finder.py).
MODULES = "compiled/modules"
KEPT = Path(os.environ.get("ODRADEK_KEPT", ".cache/compiled"))
KEPT_FILES = 200
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


def compiled_modules() -> list[Extension]:
    """The same Python, compiled by Cython (docs/adr/0025); those with the longest source, which take longest, first."""
    modules = build_backend.hot_modules()
    if not build_backend.has_cython() and not all(module.generated.exists() for module in modules):
        return []
    return [
        Extension(
            # Beside their sources Python would never import these again.
            f"odradek._server.{MODULES.replace('/', '.')}.{module.name.replace('.', '__')}",
            [module.source.as_posix()],
            # What Cython would teach these modules about its coroutines is imported with them, at each start.
            define_macros=[(f"CYTHON_PATCH_{name}", "0") for name in ("INSPECT", "ASYNCIO", "ABC")],
            # -O2 saves 1 % of a request's instructions and takes twice as long.
            extra_compile_args=["-O1", "-g0", "-w", "-fvisibility=hidden"],
            optional=True,
        )
        for module in sorted(modules, key=lambda module: -module.source.stat().st_size)
    ]


class BuildCore(build_ext):
    """Compile with every processor: while one module is translated to C, by Cython, others are compiled.

    What was compiled once is kept (``KEPT``), under the hash of all that it was made of: a wheel, an editable installation
    and the next wheel compile the same sources once. In a checkout, modules that are compiled no more go.
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
                with self.translating:  # Cython's state is the process's
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
    """Put a file among those that later builds take; of the oldest, only so many stay as a few builds make."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    shutil.copy(made, unfinished)
    unfinished.replace(kept)
    for old in sorted(kept.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_FILES]:
        old.unlink(missing_ok=True)


class WithGenerated(sdist):
    """A source distribution has the C that Cython makes: who builds from it needs a compiler, and no Cython."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        if os.environ.get("ODRADEK_PURE") == "1" or not build_backend.has_cython():
            return
        for module in build_backend.hot_modules():
            target = Path(base_dir, module.generated)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(build_backend.translated(module), target)


# setuptools is asked three times, and only in the last of them does it build.
DESCRIBED_ONLY = {"egg_info", "dist_info", "sdist"}

builds = not DESCRIBED_ONLY.intersection(sys.argv)
setup(
    packages=[*found("odradek"), *(f"odradek._server.{name}" for name in found(*SERVER))],
    package_dir={f"odradek._server.{name}": name for name in SERVER},
    ext_modules=core + compiled_modules() if builds and (core := compiled_core()) else [],
    cmdclass={"build_py": FreshBuild, "build_ext": BuildCore, "sdist": WithGenerated},
)
