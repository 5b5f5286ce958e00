import io
import json
import re
import struct
from typing import Any

from palyra.executors.files import regex_child


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def converse(*bodies: bytes) -> list[Any]:
    answers = io.BytesIO()
    regex_child.serve(io.BytesIO(b"".join(map(frame, bodies))), answers)
    answers.seek(0)
    said = []
    while (answer := regex_child.read_frame(answers)) is not None:
        said.append(json.loads(answer))
    return said


def settings(pattern: str, case_sensitive: bool = True) -> bytes:
    return json.dumps({"pattern": pattern, "case_sensitive": case_sensitive}).encode()


def question(text: str, wanted: int) -> bytes:
    return struct.pack(">I", wanted) + text.encode()


def test_answers_each_question_in_turn() -> None:
    assert converse(settings("b+"), question("ab\nc\nbb", 9), question("bb\nb", 1)) == [
        {"error": None},
        [[0, 1], [2, 0]],
        [[0, 0]],
    ]


def test_case_can_be_ignored() -> None:
    assert converse(settings("B", False), question("ab", 9))[1] == [[0, 1]]


def test_a_bad_pattern_is_told_and_ends_the_conversation() -> None:
    for pattern in ("(", "a{99999999999999999999}", "(" * 5000 + ")" * 5000):
        [verdict] = converse(settings(pattern), question("a", 1))
        assert verdict["error"]


def test_silence_is_no_question() -> None:
    assert converse() == []
    assert regex_child.find(re.compile("x"), [], 1) == []
