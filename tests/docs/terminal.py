"""A reader at a terminal: the commands of a page, one after the other in one shell, and what the page says that they print.

    with Terminal(tmp_path) as terminal:
        for block in blocks("docs/five-minutes.md"):
            terminal.take(block)

`odradek serve` goes on in a terminal of its own. The ports of the page become free ones. An installation is not made again,
since it needs the network: the package has to be there, and `tests/test_installs.py` installs ours.
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
from tests.support.deadlines import HANG_S
from tests.support.notices import without_notices
from tests.support.raw import free_port

BINARIES: Final = Path(sys.executable).parent
PORTS: Final = ("9092", "18092")
ANY_PORT: Final = rf"\b({'|'.join(PORTS)})\b"
# Those of the machine, not those of a container.
OUTSIDE: Final = rf"(?<=-p )({'|'.join(PORTS)})(?=:)|(?<=//localhost:)({'|'.join(PORTS)})\b"
END: Final = "\x01"
ANY: Final = "..."
# What differs from run to run.
DIFFERS: Final = (
    # Colours, which a reader sees and cannot type.
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
# Commands that say what they have found after a second or two, and could say more: a slow machine says all of it.
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
        """``programs`` is a folder that is first on PATH; ``ports`` is a pattern of ports that become free ones.

        With ``installed``, what pip takes in place of `odradek`, the environment is made and filled as the page says.
        """
        self.folder = folder
        self._installed = installed
        self._here = re.compile(ports)
        self.ports = dict(zip(PORTS, (str(free_port()), str(free_port())), strict=True))
        places = [programs, *([] if installed else [BINARIES]), os.environ["PATH"]]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(map(str, places)),
            # What a broker leaves that is killed.
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
            # With what the shell has left in the background.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    # ---- what a reader does with a block

    def take(self, block: Block) -> None:
        """Save it, or type its commands and compare; a Python program without a name is run at once."""
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
        """What it prints; ``AssertionError`` if it fails."""
        set_ups = [SET_UP.fullmatch(part) for part in command.split(" && ")]
        if all(set_ups) and self._installed:
            command = re.sub(r"(?<=pip install )odradek\b", self._installed, command)
        elif all(set_ups):
            for package in shlex.split(" ".join(set_up["packages"] or "" for set_up in set_ups if set_up)):
                is_there(package)
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
        """With the ports of this terminal."""
        return self._here.sub(lambda port: self.ports[port[0]], text)

    def there(self, text: str) -> str:
        """With the ports of the page."""
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
        """All lines before the one with the end, and that one."""
        said = ""
        while True:
            try:
                line = lines.get(timeout=HANG_S)
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
    """The commands of a block, each with what it prints. A backslash at the end of a line goes on in the next."""
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
    """Whether this was printed, but for what differs from run to run; a page may leave all of it out.

    `...` stands for anything in a line, and alone for any lines.
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


def is_there(package: str) -> None:
    """That the environment of the tests has a package that a page installs, with the extra."""
    name = re.match(r"[\w.-]+", package)
    assert name is not None, package
    importlib.metadata.distribution("odradek" if name[0].startswith(".") else name[0])
