"""What the command lines of broker and proxy say of the control port and of the first rules, in the same words."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from broker.config import DEFAULT_HOST
from broker.config.settings import ControlPort

if TYPE_CHECKING:
    import click

FAULTS_VARIABLE: Final = "ODRADEK_FAULTS"
CONTROL_HOST_VARIABLE: Final = "ODRADEK_CONTROL_HOST"
CONTROL_PORT_VARIABLE: Final = "ODRADEK_CONTROL_PORT"
PORT_MAX: Final = 65535
LOG_FORMATS: Final = ("auto", "human", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def usage_error(message: str) -> click.UsageError:
    """To be raised for an option that cannot be. A start that nothing is wrong with does not import click."""
    import click

    return click.UsageError(message)


def bad_setting(message: str) -> click.ClickException:
    """To be raised for a setting that cannot be; a bad option ends the process with the same exit code."""
    import click

    class BadSetting(click.ClickException):
        exit_code = 2

    return BadSetting(message)


def rules_in(text: str) -> tuple[str, ...]:
    """Rules, one in each line or between semicolons."""
    return tuple(filter(None, (rule.strip() for rule in re.split(r"[;\n]", text))))


def port_of(text: str) -> int | None:
    """The port that ``CONTROL_PORT_VARIABLE`` names; None if it is empty."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:6]) <= PORT_MAX):
        raise usage_error(f"{CONTROL_PORT_VARIABLE}: {text!r} is not a port (0 to {PORT_MAX}).")
    return int(text)


def control_port(
    host: str | None,
    port: int,
    token: str,
    allowed_hosts: Collection[str],
    *,
    stage_token: str = "",
    look_token: str = "",
) -> ControlPort:
    """Where a control port listens; ``click.UsageError`` if others could reach it without a token."""
    # Only a start with a control port pays for the import.
    from lab.control.access import Access, ControlConfigError, Tokens

    control = ControlPort(DEFAULT_HOST if host is None else host, port)
    try:
        Access.of(control.host, Tokens(token, stage_token, look_token), allowed_hosts)
    except ControlConfigError as error:
        raise usage_error(f"{error}.") from None
    return control
