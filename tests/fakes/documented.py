"""Commands as a page of the documentation gives them."""

import re
import shlex
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def commands_under(page: str, heading: str) -> list[list[str]]:
    """The words of each command in the first block of shell commands under a heading."""
    text = (DOCS / page).read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block, f"{page} has no commands under {heading}"
    return [shlex.split(line) for line in block.group(1).splitlines()]
