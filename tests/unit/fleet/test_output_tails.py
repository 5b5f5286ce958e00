from palyra.fleet.limits import MAX_OUTPUT_CHUNK_BYTES, MAX_OUTPUT_KEPT_BYTES
from palyra.fleet.server.lease_service import OutputTails


def test_chunks_join_and_what_was_seen_is_dropped() -> None:
    tails = OutputTails()
    tails.add("l", 1, 0, b"hello ")
    tails.add("l", 1, 0, b"hello ")
    tails.add("l", 1, 3, b"lo world")
    tails.add("l", 2, 0, b"oh")
    assert tails.tail("l", 1) == b"hello world" and tails.tail("l", 2) == b"oh" and tails.tail("m", 1) == b""


def test_only_the_end_is_kept_and_nothing_after_the_lease() -> None:
    tails = OutputTails()
    tails.add("l", 1, 0, b"a" * MAX_OUTPUT_KEPT_BYTES)
    tails.add("l", 1, MAX_OUTPUT_KEPT_BYTES, b"end")
    assert len(tails.tail("l", 1)) == MAX_OUTPUT_KEPT_BYTES and tails.tail("l", 1).endswith(b"end")
    tails.add("l", 3, 0, b"no such stream")
    tails.add("m", 1, 0, b"a" * (MAX_OUTPUT_CHUNK_BYTES + 1))
    assert len(tails._tails) == 1
    tails.forget("l")
    assert not tails._tails
