"""What Pythons later than the one of this run refuse, found by looking."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "palyra"
# With a sequence these are an error from 3.14 on, and 3.12 warns of them: a parameter that is used twice has a name.
NUMBERED = re.compile(r"(?:[=<>(]|,|LIMIT|WHEN|THEN|WHERE|OR|AND) ?\?[1-9]")


def test_no_statement_numbers_its_parameters() -> None:
    assert NUMBERED.search("SELECT a FROM t WHERE ?1 IS NULL OR b = ?1")
    texts = {path.relative_to(SOURCE): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert len(texts) > 500
    assert [str(path) for path, text in texts.items() if NUMBERED.search(text)] == []
