"""Processes in namespaces of their own, from the side of the machine: `inside.py` is the other side."""

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
# In memory, where there is a place: a machine whose own root folder is an overlay can put none upon it elsewhere.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class CannotContain(Exception):
    """The machine does not let this process make containers; the text says why."""


def _command(mode: str, spec: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-I", str(INSIDE), mode, json.dumps(spec)]


@dataclass
class Process:
    """One that is prepared, and waits until `go`."""

    pid: int
    """Of the process that becomes the command, as the machine counts."""
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
        """With an ``address`` it has a network of its own, else that of the machine. Output comes from ``popen``.

        What it changes goes into the folder ``changes``; ``work`` is an empty one beside it.
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
        """Its output, of both streams, and its exit code."""
        # `communicate` would close standard input first, which kills it.
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
        """The command line that runs another command beside it."""
        spec = {
            "pid": self.pid,
            "argv": list(argv),
            "environment": dict(environment),
            "user": user,
            "folder": folder,
        }
        return _command("join", spec)

    def connect(self, address: str, port: int) -> socket.socket:
        """A connection to a port in its network, made by the one thread that has gone there. ``OSError`` if refused."""
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
        """A path of its root folder, as the machine sees it."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def close(self) -> None:
        """End it, however it is."""
        self._channel.close()
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        self.popen.wait(HANG_S)
        self._network.shutdown()
        for stream in (self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()


def check() -> None:
    """``CannotContain`` where a process cannot be contained."""
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
