"""docs/reference/where-is.md: thirty questions, each answered by links to code and tests that exist."""

import re
from pathlib import Path

import pytest

from fakes.documented import names_defined_in

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "where-is.md"
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
# A sentence ends at a stop before a space. Names of files have stops too, and stand in links.
MAX_SENTENCES = 4
QUESTION = re.compile(r"^### \d+\. (.+?)\n(.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
QUESTIONS = QUESTION.findall(PAGE.read_text(encoding="utf-8"))


def test_there_are_thirty_questions_numbered_in_order() -> None:
    numbers = [int(number) for number in re.findall(r"^### (\d+)\.", PAGE.read_text(encoding="utf-8"), re.MULTILINE)]
    assert numbers == list(range(1, 31)) and len(QUESTIONS) == 30


@pytest.mark.parametrize(("question", "answer"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_an_answer_is_short_and_links_code_and_a_test(question: str, answer: str) -> None:
    assert question.startswith("Where ") and question.endswith("?")
    places = [(PAGE.parent / target).resolve() for _, target in LINK.findall(answer)]
    assert [place for place in places if not place.is_file()] == []
    assert [place for place in places if place.is_relative_to(ROOT / "src" / "palyra")]
    test = answer.partition("Test: ")[2]
    assert (PAGE.parent / LINK.findall(test)[0][1]).resolve().is_relative_to(ROOT / "tests"), "no test to copy"
    assert len(re.findall(r"[.?;](?= |$)", LINK.sub("", answer.partition("Test: ")[0]))) <= MAX_SENTENCES


@pytest.mark.parametrize(("question", "answer"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_a_link_names_its_file_or_what_is_defined_there(question: str, answer: str) -> None:
    for text, target in LINK.findall(answer):
        place = PAGE.parent / target
        if name := re.fullmatch(r"`([\w.]+)`", text):
            assert name[1] in names_defined_in(place), (name[1], target)
        else:
            assert text in (place.stem, place.name), (text, target)
