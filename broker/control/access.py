"""Who may call the control port. Pure: headers in, a refusal or nothing out.

The port can kill nodes and lose data, so a web page that its owner happens to visit must not reach it. Three rules see to
that, and each of them alone would stop one kind of page:

- The request's ``Host`` is loopback or listed, whatever address it resolved to (DNS rebinding). A port with a token, which
  such a page cannot know, may be called by any name.
- The ``Origin``, which only browsers add, is loopback or listed (a form or a script of another site).
- A call that changes something says ``Content-Type: application/json``, which a page may not send elsewhere unasked.

A port that other machines can reach wants a token as well, in every call.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from broker.control.errors import HttpError
from protocol.slotted import slotted

ALLOWED_HOSTS_SETTING: Final = "odradek.control.allowed.hosts"
TOKEN_SETTING: Final = "odradek.control.token"
TOKEN_VARIABLE: Final = "ODRADEK_CONTROL_TOKEN"
JSON: Final = "application/json"
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_QUOTED_CHARACTERS_MAX: Final = 100


class ControlConfigError(Exception):
    """The control port cannot be opened like this; the text is an error message for the operator."""


@slotted(frozen=True)
class Access:
    """The rules of one control port, from what it was started with."""

    token: str = ""
    hosts: frozenset[str] = frozenset()
    """Names and addresses beside loopback by which it may be called, in lower case."""

    @classmethod
    def of(cls, bind_host: str, token: str = "", allowed_hosts: Collection[str] = ()) -> Access:
        """``ControlConfigError`` for a port that others could reach without a token."""
        if not token and not is_loopback(bind_host):
            raise ControlConfigError(
                f"--control-host {bind_host}: a control port that other machines can reach wants a token; "
                f"set {TOKEN_SETTING} or the variable {TOKEN_VARIABLE}"
            )
        if not token.isascii():
            raise ControlConfigError(f"{TOKEN_SETTING}: a token is of ASCII characters, as HTTP headers are")
        own = () if bind_host in _WILDCARDS else (bind_host,)
        return cls(token, frozenset(host.strip().strip("[]").lower() for host in (*allowed_hosts, *own)))

    def check(self, *, headers: Mapping[str, str], changes_state: bool) -> None:
        """``HttpError`` if a call with these headers may not be made; names in ``headers`` are in lower case."""
        self.check_page(headers)
        self._check_token(headers.get("authorization"))
        if changes_state and _media_type(headers.get("content-type", "")) != JSON:
            raise HttpError(
                415, f"a call that changes something needs Content-Type: {JSON}, also without a body"
            )

    def check_page(self, headers: Mapping[str, str]) -> None:
        """The same for the files of the page: a browser asks for them without a token, and they say nothing."""
        host = headers.get("host", "")
        # A page cannot know the token: with one, the port may be called by any name.
        if not self.token and not self._is_allowed(_host_of(host)):
            raise HttpError(
                403,
                f"the control port was called as {_quoted(host)}, which is neither loopback nor "
                f"listed in {ALLOWED_HOSTS_SETTING}",
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(_origin_host(origin)):
            raise HttpError(
                403,
                f"a page of {_quoted(origin)} may not use the control port: it is neither loopback nor "
                f"listed in {ALLOWED_HOSTS_SETTING}",
            )

    def _check_token(self, authorization: str | None) -> None:
        if not self.token:
            return
        scheme, _, given = (authorization or "").partition(" ")
        # Compared in constant time: the duration must not show how much of it was right.
        right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self.token.encode())
        if scheme.lower() != "bearer" or not right:
            raise HttpError(401, "the control port wants its token in the header Authorization: Bearer TOKEN")

    def _is_allowed(self, host: str | None) -> bool:
        return host is not None and (is_loopback(host) or host in self.hosts)


def is_loopback(host: str) -> bool:
    """Whether this name or address can only be this machine itself (RFC 6761 for the names)."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(host_and_port: str) -> str | None:
    """The host of a Host header, in lower case; None if it is not one."""
    try:
        parts = urlsplit(f"//{host_and_port}")
        port_is_fine = parts.port is None or parts.port >= 0
    except ValueError:
        return None
    if parts.netloc != host_and_port or parts.username is not None or not port_is_fine:
        return None
    return parts.hostname


def _origin_host(origin: str) -> str | None:
    scheme, separator, host_and_port = origin.partition("://")
    return _host_of(host_and_port) if separator and scheme in ("http", "https") else None


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _quoted(text: str) -> str:
    return repr(text[:_QUOTED_CHARACTERS_MAX])
