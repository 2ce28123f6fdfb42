"""Notices as annotations of GitHub Actions: the runner takes these lines (workflow commands) from what a step prints.

GitHub shows the first ten errors and the first ten warnings of a step.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.certify.report.notices import Notice


def workflow_commands(notices: Iterable[Notice], file: str | None = None) -> str:
    """A line for each notice. ``file`` is the path of the certify.toml, from the root of the user's project."""
    return "".join(_annotation(each, file) + "\n" for each in notices)


def _annotation(notice: Notice, file: str | None) -> str:
    properties = {"title": notice.title}
    if file is not None:
        properties |= {"file": file, "line": "1"}
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{notice.level} {said}::{_data(notice.message)}"


def _data(text: str) -> str:
    """The runner decodes %25 last, so the percent sign is escaped first."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A colon would end the properties, a comma this one."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
