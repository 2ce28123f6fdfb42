"""Processes in new namespaces: the engine's side. `inside.py` is the container's side."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.deadlines import HANG_S, TEST_S

INSIDE = Path(__file__).with_name("inside.py")
NEW_NETWORK = 0x40000000
# The parent of containers' directories, in memory if possible: if the machine's root file system is an overlay, no
# other overlay can be mounted on it.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class CannotContain(Exception):
    """The machine does not allow this process to make containers. The text has the reason."""


def _command(mode: str, spec: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-I", str(INSIDE), mode, json.dumps(spec)]


@dataclass
class Process:
    """A prepared process, which starts its command at `go`."""

    pid: int
    """Process id of the command in the machine's PID namespace."""
    popen: subprocess.Popen[bytes]
    _channel: socket.socket
    _network: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @classmethod
    def prepare(
        cls,
        *,
        layers: Sequence[Path],
        changes: Path,
        work: Path,
        argv: Sequence[str],
        environment: Mapping[str, str],
        also: Sequence[str] = (),
        user: tuple[int, int] = (0, 0),
        folder: str = "/",
        address: str = "",
        hostname: str = "",
    ) -> Process:
        """Prepare a process. With an ``address`` it has a network namespace of its own, otherwise the machine's network.

        The process's file system changes go into the folder ``changes``; ``work`` is an empty folder beside it. The
        process writes its output to the pipes of ``popen``.
        """
        spec = {
            "layers": [str(layer) for layer in layers],
            "changes": str(changes),
            "work": str(work),
            "also": [folder for folder in also if not folder.startswith("/usr")],
            "argv": list(argv),
            "environment": dict(environment),
            "user": user,
            "folder": folder,
            "address": address,
            "hostname": hostname,
        }
        ours, theirs = socket.socketpair()
        popen = subprocess.Popen(
            _command("run", {**spec, "channel": theirs.fileno()}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        ours.settimeout(HANG_S)
        with ours.makefile("rb") as lines:
            pid, ready = lines.readline(), lines.readline()
        if ready != b"ready\n":
            ours.close()
            _, complaint = popen.communicate()
            raise CannotContain(
                complaint.decode().strip().splitlines()[-1] if complaint else "it ended at once"
            )
        return cls(int(pid), popen, ours)

    def go(self) -> None:
        self._channel.sendall(b"\n")
        self._channel.close()

    def finish(self) -> tuple[str, int]:
        """Wait for the end; return the output of both streams and the exit code."""
        # `communicate` would close standard input first, which kills the process.
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        with ThreadPoolExecutor(2) as pool:
            texts = list(pool.map(lambda stream: stream.read(), (self.popen.stdout, self.popen.stderr)))
        status = self.popen.wait(TEST_S)
        self.close()
        return b"".join(texts).decode("utf-8", "replace"), status

    def join_command(
        self, argv: Sequence[str], environment: Mapping[str, str], user: tuple[int, int], folder: str
    ) -> list[str]:
        """The command line that runs another command in the namespaces of this process."""
        spec = {
            "pid": self.pid,
            "argv": list(argv),
            "environment": dict(environment),
            "user": user,
            "folder": folder,
        }
        return _command("join", spec)

    def connect(self, address: str, port: int) -> socket.socket:
        """Connect to a port in the process's network namespace, from the only thread in this namespace.

        Raises OSError if the connection is refused.
        """
        return self._network.submit(self._connect, address, port).result(HANG_S)

    def _connect(self, address: str, port: int) -> socket.socket:
        namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, NEW_NETWORK) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(namespace)
        return socket.create_connection((address, port), HANG_S)

    def path(self, inside: str) -> Path:
        """The path on the machine for ``inside``, a path in the container."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def close(self) -> None:
        """End the process by closing its standard input, wait for its end, and close its pipes."""
        self._channel.close()
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        self.popen.wait(HANG_S)
        self._network.shutdown()
        for stream in (self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()


def check() -> None:
    """Raise ``CannotContain`` if the machine does not allow containers."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        for name in ("changes", "work"):
            Path(folder, name).mkdir()
        Process.prepare(
            layers=[],
            changes=Path(folder, "changes"),
            work=Path(folder, "work"),
            argv=["true"],
            environment={},
            address="172.17.0.2",
            hostname="check",
        ).close()
