"""The command that starts one instance of a job: a shell command line, or a list of words.

A simple command line (words, quotes, ``VAR=1`` in front) is started without a shell. One with variables, patterns or
redirections becomes ``sh -c 'exec ...'``, so that the job itself has the process id. One with ``&&``, pipes or shell
builtins becomes ``sh -c`` with the job as its child.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.deadlines import stretched
from odradek.nearest import nearest

PLACEHOLDERS: Final = ("bootstrap", "instance", "run", "data")
SHELL: Final = ("/bin/sh", "-c")
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([A-Za-z_][\w.-]*)\}")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\W")
_CONTROL: Final = frozenset(";&|()\n")
"""Characters that separate commands, outside quotes."""
_EXPANDED: Final = frozenset("$`<>*?[#~")
"""Characters with a special meaning for a shell, outside quotes."""
_OF_THE_SHELL: Final = frozenset(
    (
        *("!", "{", "case", "for", "function", "if", "in", "then", "until", "while", "[["),
        *(
            ".",
            ":",
            "alias",
            "bg",
            "break",
            "cd",
            "command",
            "continue",
            "eval",
            "exec",
            "exit",
            "export",
            "fg",
        ),
        *(
            "getopts",
            "hash",
            "jobs",
            "local",
            "read",
            "readonly",
            "return",
            "set",
            "shift",
            "source",
            "times",
        ),
        *("trap", "type", "ulimit", "umask", "unalias", "unset", "wait"),
    )
)
"""Reserved words, and builtins without a program of the same name."""
_NEAR: Final = 0.65
_SYNTAX_S: Final = stretched(10.0)


@dataclass(frozen=True, slots=True)
class Command:
    """The command of an instance. ``{bootstrap}``, ``{data}``, ``{run}`` and ``{instance}`` are placeholders."""

    words: tuple[str, ...]
    directory: Path | None = None
    assigned: tuple[tuple[str, str], ...] = ()
    """Environment variables in addition to those of the certifier."""
    is_script: bool = False
    """Whether the last word is a shell script, in which values of placeholders are quoted."""
    container: tuple[str, ...] = ()
    """An image, preceded by options of ``docker create``. An empty ``words`` runs the image's own command."""

    @classmethod
    def parse(
        cls,
        text: str | Sequence[str],
        directory: Path | None = None,
        container: Sequence[str] = (),
        placeholders: Sequence[str] = (),
    ) -> Command:
        """Parse a command. Raises ``ValueError`` if it is empty, has an unclosed quote or an unknown placeholder.

        ``placeholders`` are known in addition to `PLACEHOLDERS`.
        """
        known = (*PLACEHOLDERS, *placeholders)
        if not isinstance(text, str):
            words = list(text)
            _refuse_unknown(_in_words(words), known)
            return _of_words(words, directory, (), container)
        text = text.strip()
        words = shlex.split(text)
        _refuse_unknown(_in_text(text), known)
        if not _needs_shell(text, words):
            assigned = list(_assignments(words))
            return _of_words(words[len(assigned) :], directory, assigned, container)
        script = _script(text, words)
        return cls((*SHELL, script), directory, is_script=True, container=tuple(container))

    @property
    def shown(self) -> list[str]:
        """The complete command for reports: variable assignments and container, then the words."""
        assigned = [f"{name}={value}" for name, value in self.assigned]
        return [*(("docker", "create", *self.container) if self.container else ()), *assigned, *self.words]

    def filled(self, values: Mapping[str, str]) -> list[str]:
        if self.is_script:
            return [*self.words[:-1], _filled_script(self.words[-1], values)]
        return [_filled(word, values) for word in self.words]

    def environment(self, values: Mapping[str, str]) -> dict[str, str]:
        """The environment variables that the command line assigns; ``values`` replace the placeholders in them."""
        return {name: _filled(value, values) for name, value in self.assigned}

    def check(self) -> None:
        """Raise ``ValueError`` if the command cannot be started: no such directory or program, or a shell syntax error."""
        if self.directory is not None and not self.directory.is_dir():
            raise ValueError(f"the job cannot be started: the directory {self.directory} does not exist")
        if self.container:
            return  # the programs are in the image
        if self.is_script:
            self._check_script()
        else:
            self._check_program(self.words[0])

    def _check_script(self) -> None:
        said = subprocess.run(
            [SHELL[0], "-n", *self.words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SYNTAX_S,
            check=False,
        )
        if said.returncode:
            raise ValueError(f"the job cannot be started: {said.stderr.strip()}")
        name = self.words[-1].removeprefix("exec ").removeprefix("env ").split(maxsplit=1)[0]
        if re.fullmatch(r"[\w./+-]+", name) and name not in _OF_THE_SHELL:
            self._check_program(name)

    def _check_program(self, name: str) -> None:
        """Raise ``ValueError`` unless ``name`` is an executable file (with a slash) or a program on the job's PATH."""
        if _PLACEHOLDER.search(name):
            return
        folder = self.directory or Path()
        file = folder / name
        if "/" not in name:
            if shutil.which(name, path=dict(self.assigned).get("PATH")) is not None:
                return
            near = f"; did you mean ./{name} in the job's directory?" if file.is_file() else ""
            raise ValueError(f"the job cannot be started: {name}: command not found{near}")
        if not file.exists():
            raise ValueError(f"the job cannot be started: {name} does not exist in {folder.resolve()}")
        if file.is_dir():
            raise ValueError(f"the job cannot be started: {name} is a directory")
        if not os.access(file, os.X_OK):
            raise ValueError(f"the job cannot be started: {name} is not executable (chmod +x {name})")


def _of_words(
    words: Sequence[str],
    directory: Path | None,
    assigned: Sequence[tuple[str, str]],
    container: Sequence[str],
) -> Command:
    if not container and (not words or not words[0]):
        raise ValueError("the job's command is empty")
    return Command(tuple(words), directory, tuple(assigned), container=tuple(container))


# -- whether a shell is needed ---------------------------------------------------------------------------------------


def _characters(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the position, the character and the quotation mark around it ("" if none), for each unescaped character.

    The enclosing quotation marks themselves are left out.
    """
    quote, place = "", 0
    while place < len(text):
        char = text[place]
        if char == "\\" and quote != "'":
            place += 2
            continue
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        else:
            yield place, char, quote
        place += 1


def _needs_shell(text: str, words: Sequence[str]) -> bool:
    program = next((each for each in words if not _ASSIGNMENT.fullmatch(each)), "")
    if program in _OF_THE_SHELL or re.search(r"\\[\n$`]", text):
        return True
    return any(
        char in _CONTROL or char in _EXPANDED if not quote else quote == '"' and char in "$`"
        for _, char, quote in _characters(text)
    )


def _script(text: str, words: Sequence[str]) -> str:
    """Return the script ``text``, preceded by ``exec`` if it is a single command.

    With ``exec`` the job replaces the shell: it gets the signals, and the exit code is the job's.
    """
    program = next((each for each in words if not _ASSIGNMENT.fullmatch(each)), "")
    is_list = any(char in _CONTROL for _, char, quote in _characters(text) if not quote)
    if is_list or not program or program in _OF_THE_SHELL:
        return text
    # `exec` follows the assignments through env: `VAR=1 exec program` does not export VAR in every shell.
    return f"exec env {text}" if _ASSIGNMENT.fullmatch(words[0]) else f"exec {text}"


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The variable assignments at the beginning of the words."""
    for word in words:
        found = _ASSIGNMENT.fullmatch(word)
        if found is None:
            return
        yield found[1], found[2]


def variables(values: Mapping[str, str]) -> dict[str, str]:
    """The placeholders as environment variables of the user's commands.

    >>> variables({"http.port": "8080"})
    {'ODRADEK_HTTP_PORT': '8080'}
    """
    named = {f"ODRADEK_{_VARIABLE.sub('_', name).upper()}": value for name, value in values.items()}
    return {**named, "KAFKA_BOOTSTRAP_SERVERS": values["bootstrap"]} if "bootstrap" in values else named


# -- placeholders ----------------------------------------------------------------------------------------------------


def _filled(word: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)


def _filled_script(script: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders, and quote each value for its context so that it remains one word, or part of one."""
    quotes = {place: quote for place, _, quote in _characters(script)}
    parts, end = [], 0
    for found in _PLACEHOLDER.finditer(script):
        if found[1] in values:
            quoted = _quoted(values[found[1]], quotes.get(found.start(), ""))
            parts += [script[end : found.start()], quoted]
            end = found.end()
    return "".join([*parts, script[end:]])


def _quoted(value: str, quote: str) -> str:
    """Quote a value for its place in a script: between quotation marks ``quote``, or outside of any ("")."""
    if quote == "'":
        return value.replace("'", "'\"'\"'")
    return re.sub(r'([\\"$`])', r"\\\1", value) if quote else shlex.quote(value)


def _in_words(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield (name, is_meant) for each name in braces.

    ``is_meant``: the name is certainly a placeholder, because the word consists only of the name and its braces.
    """
    for word in words:
        for found in _PLACEHOLDER.finditer(word):
            yield found[1], found[0] == word


def _in_text(text: str) -> Iterator[tuple[str, bool]]:
    """Yield (name, is_meant) for each name in braces.

    ``is_meant``: the name is certainly a placeholder, because its braces are outside quotes. Inside quotes, braces
    may belong to awk or JSON.
    """
    quotes = {place: quote for place, _, quote in _characters(text)}
    for found in _PLACEHOLDER.finditer(text):
        yield found[1], not quotes.get(found.start(), "'")


def _refuse_unknown(found: Iterator[tuple[str, bool]], placeholders: Sequence[str]) -> None:
    """Raise ``ValueError`` for a name in ``found`` that is no placeholder, but resembles one or is meant as one.

    ``found`` are pairs (name, is_meant), see `_in_words` and `_in_text`.
    """
    for name, is_meant in found:
        if name in placeholders:
            continue
        near = nearest(name.lower(), placeholders, _NEAR)
        if near:
            raise ValueError(f"the job's command: unknown placeholder {{{name}}}; did you mean {{{near}}}?")
        if is_meant:
            known = ", ".join(f"{{{each}}}" for each in placeholders)
            raise ValueError(f"the job's command: unknown placeholder {{{name}}} (known: {known})")
