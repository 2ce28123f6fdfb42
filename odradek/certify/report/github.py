"""Notices as annotations of GitHub Actions: the runner parses these lines (workflow commands) in the output of a step.

GitHub shows the first ten errors and the first ten warnings of a step.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.certify.report.notices import Notice


def workflow_commands(notices: Iterable[Notice], file: str | None = None) -> str:
    """Format the notices as workflow commands, one line per notice.

    ``file`` is the path of certify.toml, relative to the root of the user's project.
    """
    return "".join(_annotation(each, file) + "\n" for each in notices)


def _annotation(notice: Notice, file: str | None) -> str:
    properties = {"title": notice.title}
    if file is not None:
        properties |= {"file": file, "line": "1"}
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{notice.level} {said}::{_data(notice.message)}"


def _data(text: str) -> str:
    """Escape data. The runner decodes %25 last, so the percent sign is escaped first."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property value, in which a colon would end the properties and a comma would end the value."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
