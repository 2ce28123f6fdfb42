"""The service's origin, and the translation of messages between the job and this origin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

RawHeaders = list[tuple[bytes, bytes]]
_PORTS: Final = {"http": 80, "https": 443}
_NOT_PASSED: Final = frozenset({b"host", b"expect", b"upgrade", b"http2-settings", b"proxy-connection"})
_UPGRADES: Final = frozenset({b"upgrade", b"http2-settings"})
_URLS: Final = frozenset({b"location", b"content-location"})


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of the service, and the base path of ``--stage http=URL``."""

    scheme: str
    host: str
    port: int
    base: str = ""

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Parse a URL such as ``https://payments.test/api``. Raises ``ValueError``."""
        found = urlsplit(url)
        if found.scheme not in _PORTS or not found.hostname or found.query or found.fragment:
            raise ValueError("expected a URL such as http://localhost:8080")
        if found.username is not None:
            raise ValueError("a user in the URL is not supported: the job sends the Authorization header")
        port = found.port or _PORTS[found.scheme]
        return cls(found.scheme, found.hostname, port, found.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The Host header of the service."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def headers(self, headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
        """The headers of the job's request for the service: another Host, and no upgrade to another protocol.

        A server may ignore Upgrade (RFC 9110, section 7.8). Expect: 100-continue has been answered by the proxy.
        """
        found = [(b"Host", self.authority.encode())]
        for name, value in headers:
            if name.lower() == b"connection":
                tokens = [each for each in value.split(b",") if each.strip().lower() not in _UPGRADES]
                if not tokens:
                    continue
                value = b",".join(tokens).strip()
            if name.lower() not in _NOT_PASSED:
                found.append((name, value))
        return found

    def answered(self, headers: Iterable[tuple[bytes, bytes]], proxy: str) -> RawHeaders:
        """The headers of the service's response for the job: a redirect to the service leads to ``proxy`` (host:port)."""
        return [
            (name, self._redirected(value, proxy) if name.lower() in _URLS else value)
            for name, value in headers
        ]

    def _redirected(self, value: bytes, proxy: str) -> bytes:
        found = urlsplit(value.decode("latin-1"))
        try:
            port = found.port or _PORTS.get(found.scheme)
        except ValueError:
            return value
        if (found.scheme, found.hostname, port) != (self.scheme, self.host, self.port):
            return value
        return found._replace(scheme="http", netloc=proxy).geturl().encode("latin-1")


def target(said: bytes) -> str:
    """The path and query of a request target, which may be an absolute URL.

    >>> target(b"http://payments.test/v1/payments?dry=1"), target(b"*"), target(b"http://payments.test")
    ('/v1/payments?dry=1', '*', '/')
    """
    text = said.decode("latin-1")
    if text.startswith("/") or text == "*":
        return text
    found = urlsplit(text)
    return (found.path or "/") + (f"?{found.query}" if found.query else "")
