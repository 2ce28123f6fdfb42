"""``python -I -S odradek/_server [OPTION ...] PROGRAM ...``: the broker, the proxy, or a program for a broker's files.

- ``--site=FOLDER``: a directory in which the parent process found dependencies (`odradek._server.site_folders`).
- ``--ends-with-stdin=[FOLDER]``: the process dies when its standard input ends, and a temporary directory is deleted
  (`odradek._server.ends_with_stdin`).
"""

from __future__ import annotations

import os
import signal
import sys
from _thread import start_new_thread
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SERVERS = ("serve", "proxy")
PROGRAMS = {
    "serve": ("server.__main__", "main"),
    "proxy": ("server.proxy", "main"),
    "export": ("server.exchange.export", "main_of_a_process"),
    "import": ("server.exchange.importing", "main_of_a_process"),
    "tool": ("tools.__main__", "main"),
}


def packages() -> str:
    """The directory of the server's packages: this one in a wheel, the parent of `odradek` in a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    return here if os.path.isdir(os.path.join(here, "broker")) else os.path.dirname(os.path.dirname(here))


def hold_signals() -> None:
    """Block SIGTERM and SIGINT, also across an exec, until the program can handle them.

    The kernel drops a signal that PID 1 of a container neither handles nor blocks.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def release_signals(*, to_server: bool = False) -> None:
    """Unblock SIGTERM and SIGINT, and handle those that arrived while they were blocked."""
    if to_server:
        for number in STOP_SIGNALS:
            signal.signal(number, end_before_the_start)
    elif os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def end_before_the_start(number: int, _: FrameType | None) -> None:
    """Signal handler until `server.process` installs its own: exit at once, as the server has opened nothing yet."""
    os.write(2, f"stopped by {signal.Signals(number).name} before the start\n".encode())
    os._exit(0)


def open_standard_descriptors() -> None:
    """Open /dev/null in place of standard descriptors that are closed.

    Otherwise the first files and sockets would get the numbers 0 to 2, and would receive whatever is printed. uvloop aborts
    when it closes one of these descriptors.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open returns the lowest free number
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115


def take_options(arguments: list[str]) -> None:
    """Apply the options before the program's name, and remove them from ``arguments``."""
    while arguments[1].startswith("--"):
        name, _, folder = arguments.pop(1).partition("=")
        if name == "--site":
            sys.path.append(folder)
        else:
            start_new_thread(die_with_stdin, (folder,))


def die_with_stdin(folder: str) -> None:
    """Wait for the end of standard input, then die at once, as by kill -9.

    If ``folder`` is given, the process executes a program that deletes the folder. The exec ends all threads of the
    server, so no thread writes to the folder during the deletion.
    """
    while os.read(0, 1024):
        pass
    if not folder:
        os._exit(1)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _REMOVE, folder])


_REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"


class LastResort:
    """Import finder for dependencies that are in none of the directories passed with ``--site``.

    The finder searches site-packages and reads .pth files, which `-S` disables (`odradek._server.command`). Editable
    installs need this search, because they use a .pth file.
    """

    NAMES = frozenset(
        (
            "aiohttp",
            "click",
            "cramjam",
            "google_crc32c",
            "javaproperties",
            "kio",
            "msgspec",
            "re2",
            "structlog",
            "uvloop",
            "xxhash",
        )
    )

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in cls.NAMES:
            return None
        sys.meta_path.remove(cls)
        import importlib.util
        import site

        site.main()
        return importlib.util.find_spec(name)


def main() -> int | None:
    """Run the program, and return the exit code of the process."""
    program = next(each for each in sys.argv[1:] if not each.startswith("--"))
    release_signals(to_server=program in SERVERS)
    open_standard_descriptors()
    take_options(sys.argv)
    # Insert the directory before site-packages, where a user may have packages of the same names.
    sys.path.insert(0, packages())
    sys.meta_path.append(LastResort)
    sys.argv.pop(1)
    if program == "tool":
        # The tools import helpers from `odradek` (output, control port), whose directory contains this one.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    module, function = PROGRAMS[program]
    code: int | None = getattr(import_module(module), function)(sys.argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
