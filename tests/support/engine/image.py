"""The image of our Dockerfile, built as a folder. RUN lines run as root, with that folder as their root."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.dockerfile import OF_THE_SYSTEM, ROOT, Copy, Stage, stages
from tests.support.engine.process import Process

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "compiled.*.so", "compiled", ".gitkeep")


@dataclass(frozen=True)
class Image:
    """A file system layer over the machine's own programs, and the command and settings of its containers."""

    layer: Path
    entry_point: list[str]
    user: tuple[int, int]
    folder: str
    ports: list[str]
    environment: dict[str, str]


def python_folder() -> str:
    """Folder of the interpreter that runs the tests, used as the python of the base image."""
    return str(Path(sys.base_prefix).resolve())


def build(work: Path) -> Image:
    """Build the last stage into a folder below ``work``. Raises AssertionError with the output of a RUN that failed."""
    layers: dict[str, Path] = {}
    last: Stage | None = None
    for number, stage in enumerate(stages()):
        layers[stage.name] = layer = work / f"layer{number}"
        if stage.base in layers:  # FROM names an earlier stage
            shutil.copytree(layers[stage.base], layer, symlinks=True)
        layer.mkdir(parents=True, exist_ok=True)
        for step, (name, rest) in enumerate(stage.instructions):
            if name == "COPY":
                _copy(Copy.parse(rest), layer, layers)
            elif name == "RUN" and not OF_THE_SYSTEM.match(rest):
                _run(rest, layer, work / f"run{number}-{step}")
        last = stage
    assert last is not None
    user, _, group = last.one("USER").partition(":")
    return Image(
        layer=layers[last.name],
        entry_point=last.exec_form("ENTRYPOINT"),
        user=(int(user), int(group)),
        folder=last.one("WORKDIR"),
        ports=[f"{port}/tcp" for port in last.those("EXPOSE")],
        environment={"PATH": last.one("ENV").removeprefix("PATH=").replace("$PATH", PATH)},
    )


def _copy(copy: Copy, layer: Path, layers: dict[str, Path]) -> None:
    context = layers[copy.stage] if copy.stage else ROOT
    for source, destination in copy.files(context):
        if copy.stage and OF_THE_SYSTEM.match(copy.sources[0]):
            continue
        target = layer / destination.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source, target, symlinks=True, dirs_exist_ok=True, ignore=None if copy.stage else IGNORED
            )
        else:
            shutil.copy2(source, target)
        # As Docker's builder does: without --chown the owner is root, whatever the owner in the build context.
        for path in (target, *target.rglob("*")):
            os.chown(path, *copy.owner, follow_symlinks=False)
            if copy.mode is not None and not path.is_symlink():
                path.chmod(copy.mode)


def _run(command: str, layer: Path, work: Path) -> None:
    command = re.sub(r"--mount=\S+ ", "", command)  # a cache that builds of the image share
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = Process.prepare(
        layers=[],
        changes=layer,
        work=work,
        also=[python_folder()],
        argv=["/bin/sh", "-c", command],
        environment={**environment, "PATH": f"{python_folder()}/bin:{PATH}", "HOME": "/tmp"},
    )
    process.go()
    output, status = process.finish()
    assert status == 0, f"RUN {command}\n{output}"
