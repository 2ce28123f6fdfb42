"""A program that records the demo as docs/pictures/demo.svg: ``python -m tests.docs.recording``.

The SVG plays by itself wherever a page shows it: each line appears at its time in the demo, twice as fast. Readers who
prefer reduced motion see the last state at once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from io import StringIO
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.docs.literate import DOCS
from tests.support.deadlines import TEST_S, Stopwatch

PICTURE: Final = DOCS / "pictures" / "demo.svg"
COMMAND: Final = ("odradek", "demo", "--seed", "7")
COLUMNS: Final = 84
FASTER: Final = 2
# rich's SVG format, without fonts from another host.
FORMAT: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg" role="img"
 aria-label="A recording of odradek demo">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
.{unique_id}-matrix text {{ animation: shown 1ms both; }}
@keyframes shown {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
@media (prefers-reduced-motion: reduce) {{ .{unique_id}-matrix text {{ animation: none; }} }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def record() -> list[tuple[float, str]]:
    """Run the demo, and return each line of its output with the second in which it appeared."""
    watch = Stopwatch()
    start = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"
    command = [sys.executable, "-u", "-c", start, *COMMAND[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as demo:
        assert demo.stdout is not None
        lines = [(watch.run_s, line.rstrip()) for line in demo.stdout]
        assert demo.wait(TEST_S) == 0
    return lines


def coloured(line: str) -> Text:
    """Colour a line as on a terminal: the time is dim, and the verdict green."""
    text = Text(line)
    text.highlight_regex(r"^ +[\d.]+ s", "dim")
    text.highlight_regex(r"killed.*?(?=;|$)", "yellow")
    text.highlight_regex(r"^lost 0, duplicated 0$", "bold green")
    return text


def render(lines: list[tuple[float, str]]) -> str:
    """Render the SVG. A line that rich has wrapped appears as a single line."""
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(f"[bold green]$[/] {' '.join(COMMAND)}", highlight=False)
    appears = [0.0]
    for second, line in lines:
        text = coloured(line)
        console.print(text)
        appears += [second / FASTER] * max(1, len(text.wrap(console, COLUMNS)))
    svg = console.export_svg(title="odradek demo", theme=MONOKAI, code_format=FORMAT, unique_id="demo")

    def delayed(match: re.Match[str]) -> str:
        return f'{match[1]} style="animation-delay:{appears[min(int(match[2]), len(appears) - 1)]:.2f}s">'

    return re.sub(r'(<text [^>]*clip-path="url\(#demo-line-(\d+)\)")>', delayed, svg)


if __name__ == "__main__":
    PICTURE.write_text(render(record()), "utf-8")
