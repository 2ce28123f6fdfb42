"""Imports aiohttp without its client: `aiohttp.web` and what it imports.

``import aiohttp`` imports the client first. The client creates two TLS contexts and loads OpenSSL, cookie jars and a
resolver: half of the 120 ms and 18 MiB that the import takes. A control port needs none of these. So a substitute
module with the package's name and path is put into ``sys.modules``, from which aiohttp's own modules import each other.
The first access to a name that only the real package defines executes the real package in the substitute.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from broker import late_modules

PACKAGE: Final = "aiohttp"
SERVER: Final = "aiohttp.web"
_RARELY_CALLED: Final = {
    "argparse": ("ArgumentParser",),
    "html": ("escape",),
    "urllib.request": ("getproxies", "proxy_bypass"),
}
"""Functions that the server needs only for its own command line, for proxies, and for HTML error pages, by module. The
modules (1.3 MiB) are imported when such a function is called."""


class PackageInPart(ModuleType):
    """Substitute for a package that is imported only in part. Access to a missing name executes the package."""

    is_taken = False
    """Whether `aiohttp.web` has been imported. Until then, a name that the package lacks raises ``AttributeError``, and
    afterwards it executes the package."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if not self.is_taken or spec is None or spec.loader is None:
            # An import looks for an attribute of this name before it imports the submodule.
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.is_taken = False  # the package imports its own modules now
        spec.loader.exec_module(self)
        return getattr(self, name)


def load() -> None:
    """Import `aiohttp.web`, or the whole package if it is already imported, or cannot be imported in part."""
    spec = find_spec(PACKAGE) if PACKAGE not in sys.modules else None
    if spec is None or not spec.submodule_search_locations:
        import_module(SERVER)
        return
    package = _package(spec)
    sys.modules[PACKAGE] = package
    late_modules.install_functions(_RARELY_CALLED)
    try:
        # OpenSSL takes another 4 MiB. If TLS is used, it is already loaded, and stays loaded.
        late_modules.import_without_tls(SERVER)
    except (ImportError, AttributeError):  # a release of aiohttp whose modules need the package
        for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        import_module(SERVER)
    else:
        package.is_taken = True


def _package(spec: ModuleSpec) -> PackageInPart:
    package = PackageInPart(PACKAGE)
    package.__spec__, package.__loader__, package.__file__ = spec, spec.loader, spec.origin
    package.__path__ = spec.submodule_search_locations or []
    # The server sends the version in its responses.
    text = Path(spec.origin or "").read_text("utf-8")
    vars(package)["__version__"] = "".join(re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)[:1])
    return package
