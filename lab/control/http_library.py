"""aiohttp without its client: `aiohttp.web` and what it imports.

``import aiohttp`` imports the client first, which makes two TLS contexts and loads OpenSSL, cookie jars and a resolver: half
of its 120 ms and of its 18 MiB, and a control port needs nothing of them. So a module with the package's name and path takes
its place, where its own modules find each other. The first name that only the package has runs the package in it.
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
"""What the server imports for a command line of its own, for proxies, and for a page that says what went wrong: 1.3 MiB."""


class PackageInPart(ModuleType):
    """Stands for a package of which single modules are imported; the first other name runs the package itself."""

    is_taken = False
    """The modules that were wanted are there."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if not self.is_taken or spec is None or spec.loader is None:
            # As an import asks, before it imports the module of this name.
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.is_taken = False  # the package asks for its own modules
        spec.loader.exec_module(self)
        return getattr(self, name)


def load() -> None:
    """Import `aiohttp.web`; the whole package where it is there already, or cannot be taken in part."""
    spec = find_spec(PACKAGE) if PACKAGE not in sys.modules else None
    if spec is None or not spec.submodule_search_locations:
        import_module(SERVER)
        return
    package = _package(spec)
    sys.modules[PACKAGE] = package
    late_modules.install_functions(_RARELY_CALLED)
    try:
        # OpenSSL is another 4 MiB. Where there is TLS, it is loaded already, and stays what it is.
        late_modules.import_without_tls(SERVER)
    except (ImportError, AttributeError):  # of a release whose parts need the package
        for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        import_module(SERVER)
    else:
        package.is_taken = True


def _package(spec: ModuleSpec) -> PackageInPart:
    package = PackageInPart(PACKAGE)
    package.__spec__, package.__loader__, package.__file__ = spec, spec.loader, spec.origin
    package.__path__ = spec.submodule_search_locations or []
    # The server says it in its responses.
    text = Path(spec.origin or "").read_text("utf-8")
    vars(package)["__version__"] = "".join(re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)[:1])
    return package
