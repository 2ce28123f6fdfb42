"""Lazy loading of modules that the standard library or a dependency imports at start, and that a broker may never use.

asyncio imports `ssl` and `inspect`, `logging` imports `textwrap`, and so on: 15 ms of a start and some megabytes of memory,
for functions that a broker may never call. `install` puts a `LateModule` into ``sys.modules`` for each of these modules. The
first access to an attribute loads the real module, in any thread.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodDescriptorType, ModuleType
from typing import Any, Final

NAMES: Final = (
    "asyncio.sslproto",
    "cramjam",
    "gettext",
    "hashlib",
    "hmac",
    "inspect",
    "ipaddress",
    "locale",
    "platform",
    "shutil",
    "ssl",
    "tempfile",
    "textwrap",
    "tokenize",
    "urllib.parse",
)
_IS_LATE: Final = "__late__"
_CO_COROUTINE: Final = 0x80
# Held only while a `LateModule` is replaced, never during an import. Reentrant: a destructor may load a module meanwhile.
_LOCK: Final = _thread.RLock()


class LateModule(ModuleType):
    """Placeholder that loads the real module at the first access to an attribute, and then returns its attributes."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" and _IS_LATE in self.__dict__:
            # `from x import y` reads `__path__` to see whether x is a package; none of these modules is.
            raise AttributeError(name)
        value = getattr(load(self), name)
        # Cache the value, so that Python finds it without calling this function again.
        self.__dict__.setdefault(name, value)
        return value

    def __dir__(self) -> list[str]:
        return dir(load(self))


def load(module: LateModule) -> ModuleType:
    """Return the real module of a placeholder. If two threads call this, the import system makes the second one wait for the
    import.
    """
    with _LOCK:
        if module.__dict__.pop(_IS_LATE, False) and sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    return import_module(module.__name__)


def install() -> None:
    """Install the placeholders of `NAMES` in this process, before they are imported. Loaded modules stay as they are."""
    _stand_in({name: _ASKED_AT_IMPORT.get(name, {}) for name in NAMES})


def install_functions(functions: Mapping[str, Collection[str]]) -> None:
    """Install placeholders for modules whose functions are imported by name long before they are called.

    ``functions`` maps the name of each such module to the names of these functions. The first call of a function
    loads its module.
    """
    _stand_in(
        {
            module: {name: _late_function(module, name) for name in names}
            for module, names in functions.items()
        }
    )


def _stand_in(asked: Mapping[str, Mapping[str, Any]]) -> None:
    """Put a placeholder into ``sys.modules`` for each module that is not imported yet.

    ``asked`` maps each module name to the attributes that the placeholder has before the module is loaded.
    """
    for name, values in asked.items():
        if name not in sys.modules:
            module = LateModule(name)
            module.__dict__.update({_IS_LATE: True, **values})
            sys.modules[name] = module
    for name in asked:
        package, _, child = name.rpartition(".")
        if package:
            # The import statement does not set this attribute for a module that is already in ``sys.modules``.
            vars(import_module(package)).setdefault(child, sys.modules[name])


def _late_function(module: str, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return vars(load_by_name(module))[name](*arguments, **named)

    return call


def is_late(name: str) -> bool:
    """Whether an imported module is still a placeholder."""
    return _IS_LATE in vars(sys.modules[name])


# Functions that uvloop, uuid, pathlib and dataclasses use while modules are imported.


def _iscoroutinefunction(function: object) -> bool:
    while isinstance(function, partial):
        function = function.func  # `asyncio.to_thread` passes a partial to the loop
    if isinstance(function, BuiltinFunctionType | MethodDescriptorType):
        return False  # this includes methods of compiled classes
    if type(function) is FunctionType and not vars(function):
        return bool(function.__code__.co_flags & _CO_COROUTINE)
    inspect: Any = load_by_name("inspect")
    return bool(inspect.iscoroutinefunction(function))


def _get_annotations(of: object, **options: Any) -> dict[str, Any]:
    annotations = vars(of).get("__annotations__", {}) if isinstance(of, type) and not options else None
    if type(annotations) is dict:
        return annotations.copy()
    inspect: Any = load_by_name("inspect")
    return dict(inspect.get_annotations(of, **options))


def _isgenerator(value: object) -> bool:
    return isinstance(value, GeneratorType)


def _system() -> str:
    return os.uname().sysname


def load_by_name(name: str) -> ModuleType:
    """Return the module of this name, imported if necessary, and loaded if it is a placeholder."""
    module = sys.modules.get(name)
    return load(module) if isinstance(module, LateModule) else import_module(name)


_ASKED_AT_IMPORT: Final[dict[str, dict[str, Any]]] = {
    "inspect": {
        "get_annotations": _get_annotations,  # `dataclasses`, from Python 3.12 on
        "iscoroutinefunction": _iscoroutinefunction,
        "isgenerator": _isgenerator,
    },
    "platform": {"system": _system},
    "urllib.parse": {"quote_from_bytes": _late_function("urllib.parse", "quote_from_bytes")},
}


# uvloop imports names from `ssl`, which only TLS listeners need. Loading OpenSSL costs 10 ms and 4 MB.


class _NoTLS(Exception):
    """Placeholder for the exceptions and classes that uvloop imports from `ssl`."""


_TAKEN_BY_UVLOOP: Final = {
    **dict.fromkeys(
        (
            "CertificateError",
            "MemoryBIO",
            "SSLContext",
            "SSLError",
            "SSLSyscallError",
            "SSLWantReadError",
            "SSLZeroReturnError",
            "create_default_context",
        ),
        _NoTLS,
    ),
    **dict.fromkeys(("SSL_ERROR_SYSCALL", "SSL_ERROR_WANT_READ", "SSL_ERROR_WANT_WRITE"), 0),
}


def import_without_tls(name: str) -> ModuleType:
    """Import uvloop (``name``) without `ssl`, for a process whose event loop never uses TLS. A uvloop imported in this
    way rejects every SSLContext.

    If `ssl` is loaded already, uvloop is imported normally, and TLS works.
    """
    known = sys.modules.get("ssl")
    if not (isinstance(known, LateModule) and _IS_LATE in vars(known)):
        return import_module(name)
    stand_in = ModuleType("ssl")
    vars(stand_in).update(_TAKEN_BY_UVLOOP)
    sys.modules["ssl"] = stand_in
    try:
        return import_module(name)
    except AttributeError:  # a later uvloop imports more names from `ssl`
        return _import_again(name, known)
    finally:
        sys.modules["ssl"] = known


def _import_again(name: str, ssl: ModuleType) -> ModuleType:
    sys.modules["ssl"] = ssl
    return import_module(name)
