"""Where each package of the checkout lies in a wheel; everything else about the project stands in pyproject.toml.

`odradek` stays where it is. The packages of the server go into the folder `odradek/_server`, because their names
(`broker`, `protocol`, `storage`, `tools`) are names that users give to packages of their own (docs/adr/0014). pyproject.toml
cannot say this: it can search for packages or list them, but it cannot rename those that a search has found.
"""

import shutil

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SERVER = ("broker", "protocol", "storage", "tools")


def found(*names: str) -> list[str]:
    """These packages and all below them."""
    return find_packages(include=[pattern for name in names for pattern in (name, f"{name}.*")])


class FreshBuild(build_py):
    """setuptools leaves `build/lib` behind and packs it again: a module that was moved would stay in wheels for ever."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    packages=[*found("odradek"), *(f"odradek._server.{name}" for name in found(*SERVER))],
    package_dir={f"odradek._server.{name}": name for name in SERVER},
    cmdclass={"build_py": FreshBuild},
)
