"""Modules that are loaded on the first use of one of their attributes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[2]
PREPARED = "from broker import late_modules; late_modules.install(); import sys\n"


def run(program: str) -> str:
    """Run a program in a new interpreter without site-packages, where no module of `NAMES` is loaded. Returns its output."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_asyncio_loads_none_of_them() -> None:
    program = "import asyncio\nprint([name for name in late_modules.NAMES if not late_modules.is_late(name)])"
    assert run(PREPARED + program) == "[]"


@pytest.mark.parametrize(
    "use",
    [
        "import ssl; print(ssl.SSLContext is sys.modules['ssl'].SSLContext, ssl.create_default_context().check_hostname)",
        "from ssl import SSLContext; import ssl; print(SSLContext is ssl.SSLContext, True)",
        "import asyncio as a, inspect; print(inspect.iscoroutinefunction(a.sleep), a.iscoroutinefunction(a.sleep))",
        "import inspect; print(not inspect.iscoroutinefunction(print), not inspect.iscoroutinefunction(lambda: 1))",
        "import asyncio, ssl; print(ssl.SSLWantReadError in asyncio.sslproto.SSLAgainErrors, True)",
        "import platform, os; print(platform.system() == os.uname().sysname, platform.machine() == os.uname().machine)",
        "import textwrap; print(textwrap.dedent('  a') == 'a', 'dedent' in dir(textwrap))",
        "import hashlib, hmac; print(hmac.new(b'', b'', 'sha256').digest_size == hashlib.sha256().digest_size, True)",
    ],
)
def test_one_that_is_used_is_the_real_one(use: str) -> None:
    assert run(PREPARED + use) == "True True"


def test_a_loop_that_asks_what_a_thread_is_to_call_loads_nothing() -> None:
    """The check whether a function is a coroutine function loads no late module. uvloop makes this check in
    `asyncio.to_thread`, on the event loop."""
    program = (
        "import asyncio, functools, inspect\n"
        "calls = [functools.partial(each) for each in (print, run, asyncio.sleep)]\n"
        "print([inspect.iscoroutinefunction(each) for each in calls], late_modules.is_late('inspect'))"
    )
    assert run(PREPARED + "def run(): pass\n" + program) == "[False, False, True] True"


def test_dataclasses_are_created_without_inspect() -> None:
    """From Python 3.12 on, `dataclasses` asks `inspect` for the annotations of each class."""
    program = (
        "import inspect\n"
        "class First: number: int\n"
        "class Second(First): pass\n"
        "def call(text: str): pass\n"
        "print([inspect.get_annotations(each) for each in (First, Second)], late_modules.is_late('inspect'))\n"
        "print(inspect.get_annotations(call), late_modules.is_late('inspect'))"
    )
    found = "[{'number': <class 'int'>}, {}] True\n{'text': <class 'str'>} False"
    assert run(PREPARED + program) == found


def test_functions_that_others_import_are_loaded_with_their_first_call() -> None:
    program = """
late_modules.install_functions({"urllib.request": ["getproxies"], "textwrap": ["dedent"]})
from urllib.request import getproxies
import urllib.request
print(late_modules.is_late("urllib.request"), late_modules.is_late("textwrap"))
print(isinstance(getproxies(), dict), late_modules.is_late("urllib.request"), urllib.request.Request.__name__)
"""
    assert run(PREPARED + program).splitlines() == ["True True", "True False Request"]


def test_a_function_of_a_loaded_module_is_its_own() -> None:
    program = "import argparse; late_modules.install_functions({'argparse': ['ArgumentParser']})\n"
    assert run(PREPARED + program + "print(isinstance(argparse.ArgumentParser, type))") == "True"


def test_what_a_module_lacks_is_an_attribute_error() -> None:
    program = "import textwrap\ntry: textwrap.nothing\nexcept AttributeError as error: print(error)"
    assert run(PREPARED + program) == "module 'textwrap' has no attribute 'nothing'"


def test_several_threads_that_ask_at_once_get_all_of_it() -> None:
    program = (
        "import threading, inspect, shutil, tempfile, gettext\n"
        "found, barrier = [], threading.Barrier(8)\n"
        "def ask():\n"
        "    barrier.wait()\n"
        "    found.append((inspect.Signature, shutil.rmtree, tempfile.mkdtemp, gettext.gettext))\n"
        "sys.setswitchinterval(1e-6)\n"
        "threads = [threading.Thread(target=ask) for _ in range(8)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(len(found), len(set(found)))"
    )
    assert run(PREPARED + program) == "8 1"


def test_uvloop_is_loaded_without_openssl_and_the_rest_of_the_process_has_it() -> None:
    packages = [folder for folder in sys.path if (Path(folder) / "uvloop").is_dir()]
    program = (
        f"sys.path += {packages!r}\n"
        "uvloop = late_modules.import_without_tls('uvloop')\n"
        "print('_ssl' in sys.modules)\n"
        "async def work(): return 7\n"
        "print(uvloop.run(work()))\n"
        "import ssl\n"
        "print(issubclass(ssl.SSLError, OSError), '_ssl' in sys.modules)"
    )
    assert run(PREPARED + program).split() == ["False", "7", "True", "True"]
