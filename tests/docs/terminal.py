"""A reader at a terminal, who types the commands of a page into one shell, and compares their output with the page.

    with Terminal(tmp_path) as terminal:
        for block in blocks("docs/five-minutes.md"):
            terminal.take(block)

`odradek serve` keeps running in a second terminal. The ports of the page are replaced by free ones. Installation
commands are not run, since they need the network: the package must be installed already, and `tests/test_installs.py`
tests the installation of Odradek.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Final, Self

from tests.docs.blocks import Block
from tests.support.deadlines import TEST_S
from tests.support.notices import without_notices
from tests.support.raw import free_port

BINARIES: Final = Path(sys.executable).parent
PORTS: Final = ("9092", "18092")
ANY_PORT: Final = rf"\b({'|'.join(PORTS)})\b"
# Ports of the host, not those inside a container.
OUTSIDE: Final = rf"(?<=-p )({'|'.join(PORTS)})(?=:)|(?<=//localhost:)({'|'.join(PORTS)})\b"
END: Final = "\x01"
ANY: Final = "..."
# What varies from run to run.
DIFFERS: Final = (
    # Colours, which are not part of the page.
    (r"\x1b\[[\d;]*m", ""),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "DATE"),
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    (r"\b[\d.]+ ?(ms|s|min|h)\b( [\d.]+ (ms|s|min)\b)*", "DURATION"),
    (r" \(\d+:\d\d:\d\d\)$", ""),
    (r"(@127\.0\.0\.1):\d+", r"\1:PORT"),
    (r" #\d+ ", " #N "),
    (r"\bcrc 0x[0-9a-f]{8}\b", "crc"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"(start_ms|node_id)=\d+", r"\1=N"),
    (r"cluster_id=\S+", "cluster_id=ID"),
    (r"data_dir=\S+", "data_dir=DIR"),
    (r" +", " "),
)
# Commands that print what they have found after a second or two. On a slow machine they get more time to find everything.
LIMITED: Final = re.compile(r"^(?=odradek (consume|explain|group|topic|txn) )")
PATIENCE: Final = "ODRADEK_DEADLINE_FACTOR=60 "
SET_UP: Final = re.compile(
    r"python3? -m venv \S+|\. \S+/bin/activate|(pipx|(python -m )?pip) install (?P<packages>.+)"
)


class Terminal:
    def __init__(
        self,
        folder: Path,
        *,
        programs: Path = BINARIES,
        ports: str = ANY_PORT,
        installed: str = "",
        **environment: str,
    ) -> None:
        """``programs`` is a folder that comes first on PATH; ``ports`` is a pattern of ports that are replaced by free ones.

        With ``installed``, which pip installs instead of `odradek`, the environment is created and filled as on the page.
        """
        self.folder = folder
        self._installed = installed
        self._here = re.compile(ports)
        self.ports = dict(zip(PORTS, (str(free_port()), str(free_port())), strict=True))
        places = [programs, *([] if installed else [BINARIES]), os.environ["PATH"]]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(map(str, places)),
            # A killed broker leaves its temporary directory here.
            "TMPDIR": str(folder),
            "NO_COLOR": "1",
            "ODRADEK_LOG_FORMAT": "human",
            **environment,
        }
        self._servers: list[subprocess.Popen[str]] = []
        self._shell = self._start(["bash", "--noprofile", "--norc"])
        self._lines = self._listen(self._shell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in (self._shell, *self._servers):
            # The process group, with the shell's background processes.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    # ---- the actions of a reader

    def take(self, block: Block) -> None:
        """Save the block as a file, or run its commands and compare their output. Run a Python block without a title."""
        if block.not_run:
            return
        if block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.here(block.text))
        elif block.language == "console":
            for command, expected in commands(block.text):
                said = self.run(command)
                assert matches(expected, said), f"{block}: {command}\n{said}\ninstead of\n{expected}"
        elif block.language == "python":
            self.run(f"python - <<'END'\n{block.text}END")
        elif block.language != "text":
            raise AssertionError(
                f"{block}: a reader does not know what to do with {block.language or 'this'}"
            )

    def run(self, command: str) -> str:
        """Run a command in the shell and return its output. Raises ``AssertionError`` if it fails."""
        set_ups = [SET_UP.fullmatch(part) for part in command.split(" && ")]
        if all(set_ups) and self._installed:
            command = re.sub(r"(?<=pip install )odradek\b", self._installed, command)
        elif all(set_ups):
            for package in shlex.split(" ".join(set_up["packages"] or "" for set_up in set_ups if set_up)):
                check_is_installed(package)
            return ""
        if command.startswith("odradek serve") and not command.endswith("&"):
            return self._serve(command)
        assert self._shell.stdin is not None
        patient = LIMITED.sub(PATIENCE, self.here(command))
        self._shell.stdin.write(f'{{ {patient}\n}} < /dev/null 2>&1; echo "{END}$?"\n')
        self._shell.stdin.flush()
        said, code = self._until(self._lines, END, command)
        assert code == f"{END}0", f"{command}: exit code {code[1:]}\n{said}"
        return self.there(without_notices(said))

    def here(self, text: str) -> str:
        """Replace the page's ports by those of this terminal."""
        return self._here.sub(lambda port: self.ports[port[0]], text)

    def there(self, text: str) -> str:
        """Replace this terminal's ports by those of the page."""
        for port, free in self.ports.items():
            text = re.sub(rf"\b{free}\b", port, text)
        return text

    # ---- processes

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def _listen(process: subprocess.Popen[str]) -> Queue[str]:
        lines: Queue[str] = Queue()

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=listen, daemon=True).start()
        return lines

    def _serve(self, command: str) -> str:
        folder = self.folder / "venv" / "bin" if self._installed else BINARIES
        server = self._start([str(folder / "odradek"), *shlex.split(self.here(command))[1:]])
        self._servers.append(server)
        said, started = self._until(self._listen(server), "] started  ", command)
        return self.there(said + started)

    @staticmethod
    def _until(lines: Queue[str], end: str, command: str) -> tuple[str, str]:
        """Return all lines before the line with ``end``, and that line."""
        said = ""
        while True:
            try:
                line = lines.get(timeout=TEST_S)  # a command may build and download
            except Empty:
                raise AssertionError(f"{command}: still running\n{said}") from None
            assert line, f"{command}: ended\n{said}"
            if end in line:
                before, _, _ = line.partition(END)
                return said + (before if END in line else ""), line[len(before) :].rstrip(
                    "\n"
                ) if END in line else line
            said += line


def commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with its output. A command continues after a backslash at the end of a line."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            assert found, f"no command before {line!r}"
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def matches(expected: str, said: str) -> bool:
    """Whether the output matches the page, except for what varies from run to run. A page may omit the whole output.

    `...` in a line matches any text, and a line with `...` alone matches any lines.
    """
    wanted = "".join(
        "(?:.*\n)*" if line == ANY else ".*".join(map(re.escape, normal(line).split(ANY))) + "\n"
        for line in expected.splitlines()
    )
    printed = "".join(f"{normal(line)}\n" for line in said.splitlines())
    return not expected or re.fullmatch(wanted, printed) is not None


def normal(line: str) -> str:
    for pattern, instead in DIFFERS:
        line = re.sub(pattern, instead, line)
    return line.rstrip()


def check_is_installed(package: str) -> None:
    """Check that a package, with its extra, is installed in the environment of the tests. Raises an error otherwise."""
    name = re.match(r"[\w.-]+", package)
    assert name is not None, package
    importlib.metadata.distribution("odradek" if name[0].startswith(".") else name[0])
