"""The two checks of the wording find what they must find, and take plain English and other people's names."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PLAIN_PAGES = (
    *("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("docs/README.md", "docs/reference/where-is.md", "docs/reference/glossary.md"),
)


def run(script: str, *arguments: object) -> tuple[int, list[str]]:
    command = [sys.executable, str(ROOT / "scripts" / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


PRIVATE = '''"""What a caller gets."""

# The caller is
# told what was decided.
MESSAGE = "the file is none"


def render(sign: str) -> str:
    """Return it anew."""
    return f"{sign} needs a yes"
'''
PLAIN = '''"""The result of a call.

``told`` is a name, and `a yes` an example.
"""

# Two of them are told apart. If the value is None, there is none.
FIELD = "told"


def render() -> None:
    """Make room for one more entry: that is no longer slow."""
'''


def test_phrases_are_found_in_comments_docstrings_and_messages(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(PRIVATE)
    status, lines = run("check_phrases.py", module)
    found = [line.removeprefix(f"{module}:").split(": ")[:2] for line in lines]
    assert status == 1
    assert found == [["1", "What"], ["4", "told"], ["5", "is none"], ["9", "anew"], ["10", "a yes"]]


def test_plain_english_and_names_of_code_pass(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(PLAIN)
    page = tmp_path / "page.md"
    page.write_text("# Sent\n\n```text\nis told\n```\n\n[the journal](whoever.md)\n")
    assert run("check_phrases.py", tmp_path) == (0, [])


def test_pages_are_checked_line_by_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Doors\n\nThe only way\nout.\n")
    status, lines = run("check_phrases.py", page)
    assert status == 1
    assert [line.removeprefix(f"{page}:").split(": ")[:2] for line in lines] == [["1", "Doors"], ["3", "way out"]]


@pytest.mark.parametrize("script", ["check_phrases.py", "check_words.py"])
def test_a_count_does_not_fail(tmp_path: Path, script: str) -> None:
    (tmp_path / "desk.py").write_text('"""What is told."""\n')
    status, lines = run(script, "--count", tmp_path)
    assert status == 0 and lines[-1].split()[1:] == ["in", "1", "files"]


def test_private_words_are_found_in_whatever_is_defined(tmp_path: Path) -> None:
    module = tmp_path / "node_desk.py"
    module.write_text("class LeaseBook:\n    doors = 1\n\n    def tell(self, told):\n        self.let_go = told\n")
    status, lines = run("check_words.py", module)
    found = [line.removeprefix(f"{module}:").split(": ")[0:2] for line in lines]
    assert status == 1
    assert found == [["1", "LeaseBook"], ["1", "node_desk"], ["2", "doors"], ["4", "told"], ["5", "let_go"]]


def test_other_peoples_names_tests_and_parts_of_words_pass(tmp_path: Path) -> None:
    module = tmp_path / "test_household.py"
    module.write_text(
        "import parts\nfrom book import shown\n\n\ndef test_the_agent_is_told() -> None:\n"
        "    mount_parts = shown.told(parts)\n    asked = mount_parts\n"
    )
    assert run("check_words.py", module) == (0, [])


@pytest.mark.parametrize("page", PLAIN_PAGES)
def test_what_a_newcomer_reads_first_is_plain(page: str) -> None:
    assert run("check_phrases.py", ROOT / page) == (0, [])
