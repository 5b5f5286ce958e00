"""Commands as a page of the documentation gives them."""

import re
import shlex
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def commands_under(page: str, heading: str) -> list[list[str]]:
    """The words of each command in the first block of shell commands under a heading."""
    block = re.search(r"```sh\n(.*?)```", _section(page, heading), re.DOTALL)
    assert block, f"{page} has no commands under {heading}"
    return [shlex.split(line) for line in block.group(1).splitlines()]


def commands_typed_under(page: str, heading: str) -> list[list[str]]:
    """The words of each command in the transcripts under a heading."""
    found = re.findall(r"^\$ (.*)$", _section(page, heading), re.MULTILINE)
    assert found, f"{page} has no transcript under {heading}"
    return [shlex.split(line) for line in found]


def _section(page: str, heading: str) -> str:
    return (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
