"""A program that runs pages of the documentation as a reader would type them, and compares or writes their output.

``python`` blocks are executed one after the other, in one interpreter; a ``text`` block has the output of the block
before. A ``console`` block has commands behind ``$``, each with its output. ``odradek serve`` starts a new broker, and
removes the names that earlier Python blocks defined. ``localhost:9092`` is the address of that broker. Comments in the
Markdown ask for more:

    <!-- picture: timeline payments commit.svg -->   the swim lanes of this id, as docs/pictures/commit.svg
    <!-- java: payments orders one two -->           two transactions of Kafka's Java client: id, topic, values

``python -m tests.docs.literate docs/PAGE`` writes the output into the page, and makes its pictures.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click.testing import CliRunner

import odradek
from odradek.cli import _TOOLS
from odradek.cli import main as command_line
from tests.support.deadlines import HANG_S
from tests.support.notices import without_notices
from tools.__main__ import COMMANDS

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
OF_PARTS: Final = frozenset({"docs/cookbook.md"})
"""Pages whose chapters are the sections below ``###``."""
BOOTSTRAP: Final = "localhost:9092"
CONTROL: Final = "http://127.0.0.1:18092"
_PIECE: Final = re.compile(
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$|^<!-- (?P<asked>\w+: .*?) -->$", re.M | re.S
)

Picture = Callable[[odradek.Broker, str, Path], None]
"""Function that saves a picture of the timeline of a transactional id: (broker, transactional id, file)."""


@dataclass
class Piece:
    """A block of code, or a request in a comment. ``shown`` is the output of its run."""

    language: str
    text: str
    begin: int
    """Position of the text in the page."""
    shown: str = ""


@dataclass
class Chapter:
    """A section of a page, below a ``##`` or a ``###``, whose commands are run.

    ``before`` has the commands between a ``##`` and its first ``###``. They run once, and the broker is reset before
    each further ``###`` of that ``##``.
    """

    title: str
    pieces: list[Piece] = field(default_factory=list)
    before: list[Piece] = field(default_factory=list)


def chapters(page: str, *, of_parts: bool = False) -> list[Chapter]:
    """Return the sections that run something: those below ``##``, or with ``of_parts`` those below ``###``."""
    found: list[Chapter] = []
    part: list[Piece] = []
    headings = [*re.finditer(r"^(###?) (.+)$" if of_parts else r"^(##) (.+)$", page, re.M)]
    ends = [*(heading.start() for heading in headings[1:]), len(page)]
    for heading, end in zip(headings, ends, strict=True):
        pieces = [
            Piece("asked", each["asked"], each.start())
            if each["asked"]
            else Piece(each["language"], each["text"], each.start("text"))
            for each in _PIECE.finditer(page, heading.start(), end)
        ]
        if of_parts and heading[1] == "##":
            part = pieces
        elif pieces:
            found.append(Chapter(heading[2], pieces, part))
    return found


def commands(block: str) -> list[tuple[str, str]]:
    """Return each command of a console block with its output. A command continues after a backslash at the end of a line."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", one_line(block), re.M)
    return [(command, output) for command, output in found]


def one_line(block: str) -> str:
    """Join the lines of the block's commands that end in a backslash."""
    return re.sub(r" \\\n +", " ", block)


class Reader:
    """A runner for the pieces of a page, against brokers that it starts."""

    def __init__(self, picture: Picture | None = None) -> None:
        self._open = ExitStack()
        self._picture = picture
        self.broker: odradek.Broker | None = None
        self._names: dict[str, Any] = {}
        self._kept: dict[tuple[str, ...], odradek.Broker] = {}
        self._part: list[Piece] = []

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        """Close clients before their brokers."""
        self._names.clear()
        self._open.close()

    def read(self, chapter: Chapter) -> None:
        if chapter.before and chapter.before == self._part:
            assert self.broker is not None
            self.broker.reset()
            self._type(chapter.pieces)
        else:
            self._type([*chapter.before, *chapter.pieces])
            self._part = chapter.before

    def _type(self, pieces: list[Piece]) -> None:
        printed = ""
        for piece in pieces:
            match piece.language:
                case "python":
                    printed = self._python(piece)
                case "text":
                    piece.shown = printed
                case "console":
                    piece.shown = "".join(
                        f"$ {command}\n{self._command(command)}" for command, _ in commands(piece.text)
                    )
                case "asked":
                    self._ask(piece.text)

    def _environment(self) -> dict[str, str | None]:
        return {"ODRADEK_CONTROL": self.broker.control_url if self.broker else None, "NO_COLOR": "1"}

    def _here(self, text: str) -> str:
        if self.broker is None:
            return text
        first = self.broker.bootstrap_servers.split(",")[0]
        return text.replace(BOOTSTRAP, first).replace(CONTROL, self.broker.control_url)

    def _python(self, piece: Piece) -> str:
        """Run the code, padded with empty lines so that a traceback has the line number of the page."""
        printed = io.StringIO()
        with _set(self._environment()), contextlib.redirect_stdout(printed):
            exec(compile(self._here(piece.text), "page", "exec"), self._names)
        return printed.getvalue()

    def _command(self, line: str) -> str:
        first, *filters = line.split(" | ")
        words = shlex.split(first)
        if words[0] == "export":
            return ""
        assert words[0] == "odradek", line
        if words[1] == "serve":
            self._serve(words[2:])
            return ""
        output = self._odradek(words[1:])
        for each in filters:
            output = subprocess.run(
                each, shell=True, input=output, capture_output=True, text=True, timeout=HANG_S, check=False
            ).stdout
        return output

    def _odradek(self, words: list[str]) -> str:
        """Run an ``odradek`` command in this process: an interpreter for each command would take longer than the page."""
        runner, environment = CliRunner(), self._environment()
        if words[0] in _TOOLS:
            command: click.Command = getattr(import_module(COMMANDS[words[0]]), words[0])
            done = runner.invoke(command, words[1:], env=environment, prog_name=f"odradek {words[0]}")
        else:
            done = runner.invoke(command_line, words, env=environment, prog_name="odradek")
        return without_notices(done.output)

    def _serve(self, words: list[str]) -> None:
        """Start a broker with these options, or reset the broker that was started with the same options, which is faster."""
        self._names.clear()
        if tuple(words) in self._kept:
            self.broker = self._kept[tuple(words)].reset()
            return
        settings, arguments, topics = {}, [], []
        options = iter(words)
        for option in options:
            match option:
                case "--port" | "--control-port":
                    next(options)
                case "--topic":
                    topics.append(next(options))
                case "--set":
                    name, _, value = next(options).partition("=")
                    settings[name] = value
                case _:
                    arguments += [option, next(options)]
        started = odradek.Broker(topics=topics, settings=settings, arguments=arguments)
        self.broker = self._kept[tuple(words)] = self._open.enter_context(started)

    def _ask(self, text: str) -> None:
        kind, _, rest = text.partition(": ")
        words = shlex.split(rest)
        if kind == "java":
            from tests.support.clients import JavaProducer

            assert self.broker is not None
            transactional_id, topic, *values = words
            producer = JavaProducer(self.broker.bootstrap_servers, transactional_id=transactional_id)
            producer.init()
            for value in values:
                producer.begin()
                producer.send(topic, [value])
                producer.commit()
            producer.close()
        elif kind == "picture":
            assert self.broker is not None
            what, transactional_id, name = words
            assert what == "timeline"
            if self._picture is not None:
                self._picture(self.broker, transactional_id, DOCS / "pictures" / name)


@contextlib.contextmanager
def _set(environment: dict[str, str | None]) -> Iterator[None]:
    import os

    before = {name: os.environ.get(name) for name in environment}

    def put(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(environment)
    try:
        yield
    finally:
        put(before)


# What varies from run to run: times, addresses, correlation ids, durations, producer ids.
DIFFERS: Final = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "DATE"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "DATE"),
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    (r"(127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r" #\d+ ", " #N "),
    (r"\d+(\.\d+)? (ms|s)\b", "AGE"),
    # Depending on timing, the client requests the next epoch at once, or with its next transaction.
    (r"is (Empty|CompleteAbort), without", "has ended, without"),
    (r"/\S+/odradek-\w+/", "DIRECTORY/"),
    (r"\bmember [\w/+-]{22}", "member ID"),
    (r"(?m)^\d+$", "RULE"),
    (r"\b(pid[ =]|producer |coordinator epoch |rule |fault release |its coordinator, node )\d+", r"\1N"),
    (r" \d+(/\d+ +DATE)", r" N\1"),
    (r" +", " "),
]


def comparable(text: str) -> list[str]:
    """Return the lines with the varying parts replaced, without FindCoordinator requests, whose number varies.

    The lines are sorted, because events of the same millisecond have no order.
    """
    text = one_line(text)
    for pattern, instead in DIFFERS:
        text = re.sub(pattern, instead, text)
    return sorted(line.strip() for line in text.splitlines() if "FindCoordinator" not in line)


def with_output(page: str, found: list[Chapter]) -> str:
    """Return the page with the output of its pieces, without trailing blanks."""
    pieces = [piece for chapter in found for piece in chapter.pieces if piece.shown]
    for piece in sorted(pieces, key=lambda piece: -piece.begin):
        shown = re.sub(r"[ \t]+$", "", piece.shown, flags=re.M)
        page = page[: piece.begin] + shown + page[piece.begin + len(piece.text) :]
    return page


def main(names: list[str]) -> None:
    from tests.docs.browser import save_lanes
    from tests.support.chromium import chromium

    with ExitStack() as browsers:
        browser = cache(lambda: browsers.enter_context(chromium()))

        def picture(broker: odradek.Broker, transactional_id: str, to: Path) -> None:
            save_lanes(browser(), broker.control_url, transactional_id, to)

        for name in names:
            path = Path(name)
            page = path.read_text("utf-8")
            found = chapters(page, of_parts=path.as_posix() in OF_PARTS)
            with Reader(picture) as reader:
                for chapter in found:
                    print(f"{name}: {chapter.title}", flush=True)
                    reader.read(chapter)
            path.write_text(with_output(page, found), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
