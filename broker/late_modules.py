"""Modules that others import at each start, and a broker may never use: loaded when something of them is first asked for.

asyncio imports `ssl` and `inspect`, `logging` imports `textwrap`, and so on: 15 ms of a start and some megabytes of memory,
for functions that a broker does not call. A module of this kind stands in ``sys.modules`` from the beginning; an attribute
of it is the real module's, at any time and in any thread.
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
# Of the making of modules only, never while one is imported. A destructor may come in between.
_LOCK: Final = _thread.RLock()


class LateModule(ModuleType):
    """Stands for a module until something of it is asked for, and passes on what it is asked for from then on."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" and _IS_LATE in self.__dict__:
            # `from x import y` asks whether x is a package; none of these is.
            raise AttributeError(name)
        value = getattr(load(self), name)
        # From now on Python finds it without this function.
        self.__dict__.setdefault(name, value)
        return value

    def __dir__(self) -> list[str]:
        return dir(load(self))


def load(module: LateModule) -> ModuleType:
    """The module that ``module`` stands for. If a second thread asks meanwhile, the import system lets it wait."""
    with _LOCK:
        if module.__dict__.pop(_IS_LATE, False) and sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    return import_module(module.__name__)


def install() -> None:
    """For this process, before others import them. A module that is loaded already stays."""
    _stand_in({name: _ASKED_AT_IMPORT.get(name, {}) for name in NAMES})


def install_functions(functions: Mapping[str, Collection[str]]) -> None:
    """The same for modules of which others import these functions, by module, and call none of them yet."""
    _stand_in(
        {
            module: {name: _late_function(module, name) for name in names}
            for module, names in functions.items()
        }
    )


def _stand_in(asked: Mapping[str, Mapping[str, Any]]) -> None:
    """``asked`` has what each module gives before it is loaded."""
    for name, values in asked.items():
        if name not in sys.modules:
            module = LateModule(name)
            module.__dict__.update({_IS_LATE: True, **values})
            sys.modules[name] = module
    for name in asked:
        package, _, child = name.rpartition(".")
        if package:
            # An import of a module that is there already does not do this.
            vars(import_module(package)).setdefault(child, sys.modules[name])


def _late_function(module: str, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return vars(load_by_name(module))[name](*arguments, **named)

    return call


def is_late(name: str) -> bool:
    """Whether a module that others have imported is not loaded yet."""
    return _IS_LATE in vars(sys.modules[name])


# What uvloop, uuid and pathlib take from such a module while they are imported themselves.


def _iscoroutinefunction(function: object) -> bool:
    while isinstance(function, partial):
        function = function.func  # what `asyncio.to_thread` hands to the loop
    if isinstance(function, BuiltinFunctionType | MethodDescriptorType):
        return False  # a method of a compiled class, too
    if type(function) is FunctionType and not vars(function):
        return bool(function.__code__.co_flags & _CO_COROUTINE)
    inspect: Any = load_by_name("inspect")
    return bool(inspect.iscoroutinefunction(function))


def _isgenerator(value: object) -> bool:
    return isinstance(value, GeneratorType)


def _system() -> str:
    return os.uname().sysname


def load_by_name(name: str) -> ModuleType:
    """The real module of this name."""
    module = sys.modules.get(name)
    return load(module) if isinstance(module, LateModule) else import_module(name)


_ASKED_AT_IMPORT: Final[dict[str, dict[str, Any]]] = {
    "inspect": {"iscoroutinefunction": _iscoroutinefunction, "isgenerator": _isgenerator},
    "platform": {"system": _system},
    "urllib.parse": {"quote_from_bytes": _late_function("urllib.parse", "quote_from_bytes")},
}


# uvloop takes from `ssl` what it needs for TLS, for which few brokers have a listener: OpenSSL costs 10 ms and 4 MB.


class _NoTLS(Exception):
    """Stands for exceptions and classes of `ssl`."""


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
    """Import uvloop for a process whose loop never does TLS: it would refuse every SSLContext, as no instance of its class.

    Where `ssl` is loaded already, or uvloop, nothing is gained, and TLS stays.
    """
    known = sys.modules.get("ssl")
    if not (isinstance(known, LateModule) and _IS_LATE in vars(known)):
        return import_module(name)
    stand_in = ModuleType("ssl")
    vars(stand_in).update(_TAKEN_BY_UVLOOP)
    sys.modules["ssl"] = stand_in
    try:
        return import_module(name)
    except AttributeError:  # a later uvloop takes more
        return _import_again(name, known)
    finally:
        sys.modules["ssl"] = known


def _import_again(name: str, ssl: ModuleType) -> ModuleType:
    sys.modules["ssl"] = ssl
    return import_module(name)
