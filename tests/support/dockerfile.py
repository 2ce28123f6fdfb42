"""Parser for our Dockerfile: the instructions of each stage, as tests use them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_THE_SYSTEM = re.compile(r"apt-get|cp /bin/|/usr/share/doc")
"""RUN lines and COPY sources that use packages of the builder's system, which the test machine may not have."""


@dataclass(frozen=True)
class Copy:
    """``COPY [--from=STAGE] [--chmod=MODE] [--chown=USER:GROUP] SOURCES... DESTINATION``."""

    sources: tuple[str, ...]
    destination: str
    stage: str = ""
    owner: tuple[int, int] = (0, 0)
    mode: int | None = None

    @classmethod
    def parse(cls, rest: str) -> Copy:
        words = shlex.split(rest)
        options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        assert options.keys() <= {"from", "chmod", "chown"}, rest
        *sources, destination = [word for word in words if not word.startswith("--")]
        user, _, group = options.get("chown", "0:0").partition(":")
        mode = int(options["chmod"], 8) if "chmod" in options else None
        return cls(tuple(sources), destination, options.get("from", ""), (int(user), int(group)), mode)

    def files(self, context: Path) -> Iterator[tuple[Path, str]]:
        """Yield each source file in the build context with its path in the image."""
        into = self.destination.endswith("/") or len(self.sources) > 1
        for name in self.sources:
            source = context / name.lstrip("/")
            to_folder = into and not source.is_dir()
            yield source, f"{self.destination.rstrip('/')}/{source.name}" if to_folder else self.destination


@dataclass
class Stage:
    """One FROM and the instructions after it."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def those(self, name: str) -> list[str]:
        return [rest for each, rest in self.instructions if each == name]

    def one(self, name: str) -> str:
        (rest,) = self.those(name)
        return rest

    def exec_form(self, name: str) -> list[str]:
        """The words of ENTRYPOINT, or of the CMD in HEALTHCHECK."""
        words: list[str] = json.loads(self.one(name).rpartition("CMD ")[2])
        return words


def stages() -> list[Stage]:
    """The stages, without comments and with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text("utf-8"))
    found: list[Stage] = []
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        if name == "FROM":
            base, _, alias = rest.strip().partition(" AS ")
            found.append(Stage(base, alias))
        else:
            found[-1].instructions.append((name, rest.strip()))
    return found
