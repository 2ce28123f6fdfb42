"""The certificate in progress, as a browser and a program get it."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from odradek.certify.live import Live
from tests.odradek.certify.certificates import LOST, certificate, failure
from tests.support.deadlines import HANG_S


def got(url: str) -> str:
    with urlopen(url, timeout=HANG_S) as answer:
        text: str = answer.read().decode()
        return text


def test_it_shows_what_is_known_so_far() -> None:
    growing = certificate(clean=2)
    with Live(growing, port=0) as live:
        assert 'http-equiv="refresh"' in got(live.url)
        shown = json.loads(got(f"{live.url}/certificate.json"))
        assert (shown["verdict"], shown["failures"], shown["is_over"]) == ("incomplete", [], False)

        growing.failures.append(failure(LOST))
        growing.took_s = 5.0
        assert "refresh" not in got(live.url)
        shown = json.loads(got(f"{live.url}/certificate.json"))
        assert (shown["verdict"], len(shown["failures"]), shown["is_over"]) == ("failed", 1, True)
        with pytest.raises(HTTPError, match="404"):
            got(f"{live.url}/elsewhere")


def test_a_port_in_use_is_an_error() -> None:
    with Live(certificate(), port=0) as live, pytest.raises(OSError, match="in use"):
        Live(certificate(), port=int(live.url.rpartition(":")[2]))
