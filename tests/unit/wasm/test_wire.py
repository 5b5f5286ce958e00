import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.wasm.domain.frames import (
    PACKET_BYTES,
    Answer,
    Ask,
    Assembler,
    BadFrame,
    Done,
    Load,
    Unload,
    packets,
    read_from_guest_process,
    read_to_guest_process,
)

DONE = Done(
    kind="",
    message="",
    output=b"",
    fuel_used=1,
    peak_memory_bytes=2,
    duration_us=3,
    host_calls=4,
    logs=((1, "x"),),
    logs_dropped=0,
    spent=False,
)


def _through(frame):
    assembler = Assembler()
    *first, last = packets(frame)
    assert [assembler.take(packet) for packet in first] == [None] * len(first)
    return assembler.take(last)


@pytest.mark.parametrize("size", [0, 1, PACKET_BYTES - 50, PACKET_BYTES, 5 * PACKET_BYTES + 3])
def test_frames_of_any_size_come_through(size):
    frame = Answer(number=7, status=-1, result=b"x" * size)
    assert read_to_guest_process(_through(frame)) == frame
    done = msgspec.structs.replace(DONE, output=b"y" * size)
    assert read_from_guest_process(_through(done)) == done


def test_every_packet_fits_a_socket():
    assert max(map(len, packets(Answer(number=1, status=0, result=bytes(300_000))))) <= PACKET_BYTES


def test_the_daemon_does_not_read_what_only_it_may_say():
    for frame in (Unload(digest=b""), Answer(number=1, status=0)):
        with pytest.raises(BadFrame):
            read_from_guest_process(_through(frame))
    assert Load.__struct_config__.tag == 1


@given(st.binary(max_size=100))
def test_any_bytes_are_a_frame_or_a_bad_one(data):
    try:
        read_from_guest_process(data)
    except BadFrame:
        return


def test_a_frame_without_end_is_cut_off():
    assembler = Assembler(most=1_000)
    with pytest.raises(BadFrame):
        for _ in range(100):
            assembler.take(b"\1" + bytes(100))
    with pytest.raises(BadFrame):
        Assembler().take(b"\x07abc")


def test_a_deep_nest_is_a_bad_frame():
    with pytest.raises(BadFrame):
        read_from_guest_process(b"\x91" * 100_000)


def test_an_extra_or_missing_field_is_a_bad_frame():
    ask = msgspec.msgpack.decode(_through(Ask(number=1, operation="http", handle=2)))
    for wrong in (ask[:2], [*ask, 1], ["x", *ask[1:]], [22, "one", *ask[2:]]):
        with pytest.raises(BadFrame):
            read_from_guest_process(msgspec.msgpack.encode(wrong))
