"""What is kept of a part that never changes must be written exactly as if it were new each time."""

import pytest

from palyra.canonical import canonical_json
from palyra.journal.lasting import Lasting, as_written
from palyra.journal.redact import Redactor
from palyra.limits import MAX_EVENT_PAYLOAD_BYTES, MAX_JOURNAL_STRING_CHARS
from palyra.secret import REDACTED, Secret


@pytest.mark.parametrize(
    "value",
    [
        {"uid": {"type": "Agent", "id": "bot"}, "attrs": {}, "parents": [{"type": "Group", "id": "allowed"}]},
        {"b": 1, "a": [True, None, "é"]},
        {"access_token": "unlocks", "about": "x"},
        {"number": 2**60, "part": 1.5},
        {"long": "x" * (MAX_JOURNAL_STRING_CHARS + 1)},
        {"half": "\ud800"},
    ],
)
def test_it_is_written_as_what_it_holds(value):
    redactor, lasting = Redactor(), Lasting(value)
    for _ in range(2):
        assert redactor.payload({"z": lasting, "a": [lasting]}) == redactor.payload({"z": value, "a": [value]})


def test_a_secret_that_is_learned_later_is_taken_out_of_it():
    redactor, lasting = Redactor(), Lasting({"id": "hunter2-hunter2"})
    assert b"hunter2" in redactor.payload({"who": lasting})
    redactor.register(Secret("hunter2-hunter2"))
    assert redactor.payload({"who": lasting}) == canonical_json({"who": {"id": REDACTED}})


def test_the_whole_stays_bounded():
    parts = [Lasting({"text": "x" * MAX_JOURNAL_STRING_CHARS}) for _ in range(400)]
    assert len(Redactor().payload({"parts": parts})) <= MAX_EVENT_PAYLOAD_BYTES


def test_an_encoder_is_told_of_nothing_else():
    with pytest.raises(TypeError):
        as_written(object())
    with pytest.raises(TypeError):
        as_written(Lasting({}))
