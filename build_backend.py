"""The build backend: setuptools, and the translation of the hot modules to C (docs/adr/0025).

pyproject.toml names this module as the build backend. It requires Cython only if it will be used: not for a pure package,
and not in a source distribution, which already contains the C files.
"""

import hashlib
import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path

from setuptools import build_meta

SERVER = ("broker", "compiled", "lab", "protocol", "proxy", "server", "storage", "tools")
CYTHON = "cython>=3.1,<4"
GENERATED = Path("generated")
DIRECTIVES = {
    "language_level": 3,
    # Raise AttributeError for None in C, too.
    "nonecheck": True,
    "overflowcheck": True,
    "annotation_typing": False,
    "binding": False,
    "embedsignature": False,
    "always_allow_keywords": True,
    # The modules' classes are never pickled, and the code for that would be a tenth of the total.
    "auto_pickle": False,
    "emit_code_comments": False,
}


# Functions of hot modules that requests spend time in, with the functions of Cython that they call (`make hot`). All others,
# two thirds, are compiled without optimisation, which saves a third of the compiler's time (docs/adr/0025).
HOT = Path("compiled/hot_functions.txt")
OTHERS = """
#ifdef __clang__
#define NOT_HOT __attribute__((optnone, noinline))
#else
#define NOT_HOT __attribute__((optimize("Og"), noinline))
#endif
"""
FUNCTION = re.compile(
    r"^static (?!CYTHON_INLINE|CYTHON_SMALL_CODE)([^;={(\n]*?)\b(__[Pp]yx_\w+)\(", re.MULTILINE
)


def name_of(function: str) -> str:
    """Name of a C function without Cython's numbers:

    `__pyx_pw_7storage_3log_3Log_5append` is `pw_storage_log_Log_append`.
    """
    return re.sub(r"(?<=_)\d+(?=[A-Za-z_])", "", re.split(r"[.']", function)[0].removeprefix("__pyx_"))


@cache
def hot_functions() -> frozenset[str]:
    """The functions in ``HOT``, by `name_of`."""
    return frozenset(HOT.read_text("utf-8").split())


@cache
def types() -> str:
    """Content of all ``.pxd`` files, because each module depends on the layout of other modules' classes."""
    return "\0".join(path.read_text("utf-8") for name in SERVER for path in sorted(Path(name).rglob("*.pxd")))


class HotModule:
    """A module with a ``.pxd`` file beside it."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.name = ".".join(source.with_suffix("").parts)
        of = (source.read_text("utf-8"), types(), repr(DIRECTIVES), OTHERS, repr(sorted(hot_functions())))
        self.digest = hashlib.sha256("\0".join(of).encode()).hexdigest()

    @property
    def generated(self) -> Path:
        """Its C file in a source distribution. The name has a hash, so a changed source has no such file."""
        return GENERATED / f"{self.name.replace('.', '__')}.{self.digest[:16]}.c"


def files_of_types(*, is_compiled: bool) -> list[Path]:
    """The ``.pxd`` files of compiled modules, or those that only describe the classes of a module that is not compiled."""
    found = [path for name in SERVER for path in sorted(Path(name).rglob("*.pxd"))]
    return [path for path in found if ("cdef extern" not in path.read_text("utf-8")) == is_compiled]


def hot_modules() -> list[HotModule]:
    """The modules to compile: those whose ``.pxd`` file does not only describe classes."""
    return [HotModule(path.with_suffix(".py")) for path in files_of_types(is_compiled=True)]


def layouts() -> str:
    """The modules that are not compiled but have a ``.pxd`` file, one per line."""
    described = files_of_types(is_compiled=False)
    return "".join(".".join(path.with_suffix("").parts) + "\n" for path in described)


def has_cython() -> bool:
    return importlib.util.find_spec("Cython") is not None


def translated(module: HotModule) -> str:
    """Translate a module to C; returns the path of the C file."""
    from Cython.Build import cythonize
    from setuptools import Extension

    [made] = cythonize(
        [Extension(module.name, [module.source.as_posix()])],
        compiler_directives=DIRECTIVES,
        build_dir="build/modules",
        force=True,
        quiet=True,
    )
    [path] = map(Path, made.sources)
    # Cython overwrites only files that begin with its own first line.
    first, rest = path.read_text("utf-8").split("\n", 1)
    path.write_text(first + OTHERS + FUNCTION.sub(optimised, rest), "utf-8")
    return str(path)


def optimised(found: re.Match[str]) -> str:
    """The beginning of a function's declaration, changed so that only hot functions are optimised."""
    result, function = found.groups()
    return found[0] if name_of(function) in hot_functions() else f"static NOT_HOT {result}{function}("


def _cython() -> list[str]:
    is_pure = os.environ.get("ODRADEK_PURE") == "1" or os.name == "nt" or sys.implementation.name != "cpython"
    return [] if is_pure or all(module.generated.exists() for module in hot_modules()) else [CYTHON]


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    """The requirements of building a wheel besides setuptools."""
    return _cython()


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings: object = None) -> list[str]:
    """The requirements of building a source distribution besides setuptools."""
    return _cython()


build_sdist = build_meta.build_sdist
build_wheel = build_meta.build_wheel
build_editable = build_meta.build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
