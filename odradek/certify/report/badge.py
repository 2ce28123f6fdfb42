"""The certificate as a badge for a README: one line of text as SVG, with the width of its text."""

from __future__ import annotations

from typing import Final

from odradek.certify.certificate import Certificate
from odradek.certify.judging.findings import failures
from odradek.certify.outcome import Verdict
from odradek.certify.plans.exploration import Coverage
from odradek.certify.report.rendering import rendered

# White text on these colours has a contrast of at least 4.5, as WCAG level AA requires.
GREEN: Final = "#1a7f37"
RED: Final = "#cf222e"
GREY: Final = "#57606a"

_FONT_PX: Final = 11
_PADDING_PX: Final = 6
_EM: Final = 2048
_WIDTHS: Final = {
    **dict.fromkeys("il", 562),
    **dict.fromkeys("j", 705),
    **dict.fromkeys(" f", 720),
    **dict.fromkeys("()", 930),
    **dict.fromkeys("t", 807),
    **dict.fromkeys("r", 874),
    **dict.fromkeys(":", 930),
    **dict.fromkeys("csz", 1070),
    **dict.fromkeys("kvxy", 1212),
    **dict.fromkeys("aeo", 1230),
    **dict.fromkeys("bdgpqhnu", 1285),
    **dict.fromkeys("0123456789", 1302),
    **dict.fromkeys("w", 1676),
    **dict.fromkeys("m", 1992),
}
"""Widths of Verdana's characters, in em / 2048. ``textLength`` stretches other fonts to the same width."""
_OTHERS: Final = 1302


def badge(certificate: Certificate) -> str:
    """A badge such as ``exactly once | 214 failures survived``, as a self-contained SVG."""
    message, colour = says(certificate)
    label_px, message_px = width_px(certificate.promise), width_px(message)
    shown = {
        "label": certificate.promise,
        "message": message,
        "colour": colour,
        "label_px": label_px,
        "message_px": message_px,
        "padding_px": _PADDING_PX,
        "font_px": _FONT_PX,
    }
    return rendered("badge.svg.j2", shown)


def says(certificate: Certificate) -> tuple[str, str]:
    """The badge's text and colour. A survived failure is a cell whose fault had an effect and made no run fail."""
    verdict = certificate.verdict
    if verdict is Verdict.FAILED:
        return f"not: {failures(len(certificate.failures))}", RED
    if verdict is Verdict.CLEAN:
        return f"{failures(certificate.covered()[Coverage.CLEAN])} survived", GREEN
    ground = f" ({certificate.met} of {len(certificate.needed)})" if verdict is Verdict.INCOMPLETE else ""
    return verdict.value + ground, GREY


def width_px(text: str) -> int:
    """Width of the text without padding, rounded up."""
    return -(-sum(_WIDTHS.get(each, _OTHERS) for each in text) * _FONT_PX // _EM)
