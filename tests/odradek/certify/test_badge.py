"""The badge of a certificate."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from odradek.certify.certificate import Certificate
from odradek.certify.outcome import Verdict
from odradek.certify.report import badge as badge_module
from odradek.certify.report.badge import GREEN, GREY, RED, badge, says, width_px
from odradek.certify.report.text import summary
from odradek.certify.workload import Delivery
from tests.odradek.certify.certificates import LOST, certificate, failure

LABEL = "exactly once"
SVG = "{http://www.w3.org/2000/svg}"


def no_promise() -> Certificate:
    found = certificate(whole=True)
    found.mechanisms = []
    return found


@pytest.mark.parametrize(
    ("found", "message", "colour"),
    [
        (certificate(whole=True), f"{len(certificate().cells)} failures survived", GREEN),
        (certificate(clean=1), f"incomplete (1 of {len(certificate().needed)})", GREY),
        (certificate(failure(LOST), clean=9), "not: 1 failure", RED),
        (certificate(failure(LOST), failure(LOST, fault="reset")), "not: 2 failures", RED),
        (no_promise(), "no promise", GREY),
    ],
)
def test_a_badge_says_what_was_found(found: Certificate, message: str, colour: str) -> None:
    assert says(found) == (message, colour)
    picture = ElementTree.fromstring(badge(found))
    assert [each.text for each in picture.iter(f"{SVG}text")] == [LABEL, message]
    assert [each.get("fill") for each in picture.iter(f"{SVG}rect")][-1] == colour


def test_a_badge_names_the_promise() -> None:
    found = certificate(whole=True)
    found.delivery = Delivery.AT_LEAST_ONCE
    assert "at least once" in badge(found)
    assert summary(found).splitlines()[-1] == (
        "AT LEAST ONCE: under each fault that a certificate needs, the outputs are those of a run without faults, apart "
        "from duplicates of records that the share group delivered again (check)"
    )
    found = certificate(failure(LOST))
    found.delivery = Delivery.AT_LEAST_ONCE
    assert summary(found).splitlines()[-1] == "NOT AT LEAST ONCE: 1 failure"


def test_a_badge_is_an_svg_with_a_title() -> None:
    picture = ElementTree.fromstring(badge(certificate(whole=True)))
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == f"exactly once: {len(certificate().cells)} failures survived"
    assert picture.findtext(f"{SVG}title") == f"exactly once: {len(certificate().cells)} failures survived"


def test_each_text_lies_in_its_own_half() -> None:
    picture = ElementTree.fromstring(badge(certificate(clean=20)))
    label, message = picture.iter(f"{SVG}text")
    left, right = list(picture.iter(f"{SVG}rect"))[1:]
    for text, box in ((label, left), (message, right)):
        begin, length = float(text.get("x", "")), float(text.get("textLength", ""))
        start, width = float(box.get("x", "0")), float(box.get("width", ""))
        assert begin - start == start + width - (begin + length) > 0
    assert float(picture.get("width", "")) == float(left.get("width", "")) + float(right.get("width", ""))


def test_a_text_is_as_wide_as_its_letters() -> None:
    assert width_px("") == 0
    assert width_px("mmmm") > 3 * width_px("iiii")
    assert width_px("ab" * 50) == pytest.approx(50 * (1230 + 1285) * 11 / 2048, abs=1)


def test_all_letters_of_a_badge_are_in_the_table() -> None:
    texts = [
        LABEL,
        "0123456789 failures survived",
        "not: 1 failure",
        *(f"{each.value} (1 of 2)" for each in Verdict),
    ]
    assert {letter for text in texts for letter in text} <= badge_module._WIDTHS.keys()


def test_text_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(badge_module, "says", lambda found: ('<"&', GREY))
    picture = ElementTree.fromstring(badge(certificate()))
    assert picture.get("aria-label") == 'exactly once: <"&'
    assert [each.text for each in picture.iter(f"{SVG}text")] == [LABEL, '<"&']


def luminance(colour: str) -> float:
    """Relative luminance as defined by WCAG 2.1."""

    def channel(number: int) -> float:
        part = number / 255
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    red, green, blue = (channel(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", [GREEN, RED, GREY])
def test_white_text_can_be_read(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 4.5
