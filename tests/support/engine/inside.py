"""A program that runs a command in new namespaces with a new root folder: the container side of the engine.

    python -I inside.py run  {"layers": [...], "changes": ..., "argv": [...], ...}
    python -I inside.py join {"pid": 4711, "argv": [...], ...}

`run` makes the namespaces, mounts the root folder, writes the process id to the descriptor `channel`, waits for a byte
from `channel`, and executes the command, which is killed when the standard input of `inside.py` ends. `join` runs a
command in the namespaces of another process. Both need root, and only Python's standard library.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, NEW_HOSTNAME, NEW_IPC, NEW_PIDS, NEW_NETWORK = (
    0x20000,
    0x4000000,
    0x8000000,
    0x20000000,
    0x40000000,
)
PRIVATE, RECURSIVE, BIND, READ_ONLY, REMOUNT = 1 << 18, 1 << 14, 1 << 12, 1, 1 << 5
SIOCSIFADDR, SIOCSIFNETMASK, SIOCGIFFLAGS, SIOCSIFFLAGS, UP = 0x8916, 0x891C, 0x8913, 0x8914, 1
DIE_WITH_PARENT = 1
# Folders of the machine with programs and libraries. Its other folders are not visible inside.
SHARED = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt")


def checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), flags, data.encode())
    checked(LIBC.mount(*arguments), f"mount {kind or 'bind'} {source} at {target} {data}")


def prepare_root(layers: list[str], changes: str, work: str, also: list[str]) -> str:
    """Mount the folders of the layers over those of the machine. Changes of the process are written to ``changes``."""
    mount("none", "/", "", RECURSIVE | PRIVATE)
    root, empty = f"{work}/root", f"{work}/empty"
    os.makedirs(empty)
    os.makedirs(root)
    mount("tmpfs", root, "tmpfs", data="mode=755")
    names = {name for folder in (*layers, changes) for name in os.listdir(folder)} | set(SHARED)
    for name in sorted(names):
        machines, inside = f"/{name}", f"{root}/{name}"
        below = [f"{folder}/{name}" for folder in layers if os.path.isdir(f"{folder}/{name}")]
        if name in SHARED and os.path.islink(machines):
            os.symlink(os.readlink(machines), inside)
            continue
        if name in SHARED and os.path.isdir(machines):
            below.append(machines)
        os.mkdir(inside)
        os.makedirs(f"{changes}/{name}", exist_ok=True)
        os.makedirs(f"{work}/of/{name}")
        lower = ":".join([*below, empty])
        data = f"lowerdir={lower},upperdir={changes}/{name},workdir={work}/of/{name}"
        mount("overlay", inside, "overlay", data=data)
    for name in also:
        os.makedirs(root + name, exist_ok=True)
        mount(name, root + name, "", BIND)
        mount(name, root + name, "", BIND | REMOUNT | READ_ONLY)
    for name in ("proc", "dev", "tmp"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    mount("proc", f"{root}/proc", "proc")
    mount("/dev", f"{root}/dev", "", BIND | RECURSIVE)
    mount("tmpfs", f"{root}/tmp", "tmpfs", data="mode=1777")
    return root


def raise_network(address: str) -> None:
    """Bring up the loopback interface, and give it the container's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def ask(number: int, name: str, value: bytes) -> bytes:
            return fcntl.ioctl(control, number, struct.pack("16s", name.encode()) + value.ljust(24, b"\0"))

        flags = struct.unpack("H", ask(SIOCGIFFLAGS, "lo", b"")[16:18])[0]
        ask(SIOCSIFFLAGS, "lo", struct.pack("H", flags | UP))
        ask(SIOCSIFADDR, "lo:0", struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(address)))


def become(user: tuple[int, int], folder: str, environment: dict[str, str], argv: list[str]) -> None:
    os.setgroups([])
    os.setgid(user[1])
    os.setuid(user[0])
    os.chdir(folder)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        sys.stderr.write(f"exec {argv[0]}: {error.strerror}\n")
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def end_as(child: int) -> None:
    """Wait for the child and exit with its exit code, or 128 plus its signal, as a shell does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def kill_at_the_end_of_stdin(child: int) -> None:
    """Kill the child when the engine, which has the other end of the pipe, ends. No container outlives the engine."""
    # A process that has made a PID namespace for its children cannot start threads.
    ended = os.pidfd_open(child)
    readable, _, _ = select.select([0, ended], [], [])
    if ended not in readable:
        os.kill(child, signal.SIGKILL)


def fork_below(parent_dies: bool) -> int:
    child = os.fork()
    if child == 0 and parent_dies:
        LIBC.prctl(DIE_WITH_PARENT, signal.SIGKILL)
    return child


def run(spec: dict) -> None:
    channel: int = spec["channel"]
    network = NEW_NETWORK if spec["address"] else 0
    checked(LIBC.unshare(NEW_MOUNTS | NEW_HOSTNAME | NEW_IPC | NEW_PIDS | network), "unshare")
    named, naming = os.pipe()
    child = fork_below(parent_dies=True)
    if child:
        os.write(channel, f"{child}\n".encode())
        os.close(channel)
        os.close(naming)
        kill_at_the_end_of_stdin(child)
        end_as(child)
    os.close(naming)
    os.read(named, 1)  # until the engine has recorded the process id, which comes before the process's output
    os.close(named)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    root = prepare_root(spec["layers"], spec["changes"], spec["work"], spec["also"])
    if spec["address"]:
        raise_network(spec["address"])
        socket.sethostname(spec["hostname"])
        with open(f"{root}/etc/hosts", "w") as hosts:
            hosts.write(f"127.0.0.1 localhost\n::1 localhost\n{spec['address']} {spec['hostname']}\n")
    os.chroot(root)
    os.chdir("/")
    os.write(channel, b"ready\n")
    if not os.read(channel, 1):
        os._exit(0)
    os.close(channel)
    become(tuple(spec["user"]), spec["folder"], spec["environment"], spec["argv"])


def join(spec: dict) -> None:
    process = f"/proc/{spec['pid']}"
    root = os.open(f"{process}/root", os.O_RDONLY)
    for name, kind in (
        ("uts", NEW_HOSTNAME),
        ("ipc", NEW_IPC),
        ("net", NEW_NETWORK),
        ("pid", NEW_PIDS),
        ("mnt", NEW_MOUNTS),
    ):
        namespace = os.open(f"{process}/ns/{name}", os.O_RDONLY)
        checked(LIBC.setns(namespace, kind), f"setns {name}")
        os.close(namespace)
    os.fchdir(root)
    os.chroot(".")
    child = fork_below(parent_dies=False)
    if child:
        end_as(child)
    become(tuple(spec["user"]), spec["folder"], spec["environment"], spec["argv"])


if __name__ == "__main__":
    os.umask(0o022)
    {"run": run, "join": join}[sys.argv[1]](json.loads(sys.argv[2]))
