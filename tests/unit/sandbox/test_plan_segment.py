import struct

from palyra.sandbox.domain.launch_spec import LaunchStage
from palyra.sandbox.launch.plan_segment import Segment

STAGE = LaunchStage.EXEC
NUMBERS = {"write": 1, "close": 3}


def word(encoded: bytes, place: int) -> int:
    return int(struct.unpack_from("<Q", encoded, place)[0])


def test_an_appended_segment_points_into_its_own_data() -> None:
    first, second = Segment(NUMBERS), Segment(NUMBERS)
    first.add(STAGE, "write", 1, first.text(b"first"), 5)
    second.add(STAGE, "write", 2, second.text(b"second"), 6, on_error=3, on_success=2)
    second.strings([b"x", b"yy"])
    whole = Segment(NUMBERS)
    whole.append(first)
    whole.append(second)
    encoded = whole.encode()
    version, relocations, relocations_at, records_at = struct.unpack_from("<4Q", encoded)
    assert (version, relocations, records_at) == (1, 4, 32)
    assert len(encoded) == relocations_at + 8 * relocations
    for record, content in ((0, b"first"), (1, b"second")):
        text = word(encoded, records_at + 64 * record + 16)
        assert encoded[text : text + len(content) + 1] == content + b"\0"
    assert word(encoded, records_at + 64 + 56) == 3 | 1 << 8
    # The array of two texts: its words are relocated too, and it ends with zero.
    slots = [word(encoded, relocations_at + 8 * n) for n in range(relocations)]
    array = slots[2]
    assert slots[3] == array + 8
    assert [encoded[word(encoded, slot)] for slot in slots[2:]] == [ord("x"), ord("y")]
    assert word(encoded, array + 16) == 0


def test_the_segment_that_was_appended_can_be_used_again() -> None:
    shared = Segment(NUMBERS)
    shared.add(STAGE, "write", 1, shared.text(b"text"), 4)
    plans = []
    for _ in range(2):
        whole = Segment(NUMBERS)
        whole.add(STAGE, "close", 9)
        whole.append(shared)
        plans.append(whole.encode())
    assert plans[0] == plans[1]
