import itertools

from palyra.journal.chain import GENESIS_HASH, event_hash

FIELDS = (7, b"id", 1_700, b"kind", b"actor", b"principal", b"run", b"call", b"{}", b"\x01" * 32)


def test_the_encoding_is_fixed():
    """A change of these values breaks every journal there is: it needs a new version and a new domain tag."""
    assert GENESIS_HASH.hex() == "257a7ab554b111153ec86e697e0426f2b8d5fbf6ed6daa1db4744e742bff4bda"
    assert event_hash(*FIELDS).hex() == "46f8107adf164a90c0af82a5a5e71610364d1f904beee9a8df61caf9ab784644"


def test_every_field_counts():
    hashes = {event_hash(*FIELDS)}
    for place, field in enumerate(FIELDS):
        other = field + 1 if isinstance(field, int) else field + b"x"
        hashes.add(event_hash(*FIELDS[:place], other, *FIELDS[place + 1 :]))
    assert len(hashes) == len(FIELDS) + 1


def test_text_cannot_move_from_one_field_to_the_next():
    hashes = set()
    for lengths in itertools.product((0, 1, 2), repeat=3):
        rest, parts = b"aaaaaa", []
        for length in lengths:
            parts.append(rest[:length])
            rest = rest[length:]
        hashes.add(event_hash(1, b"", 1, *parts, rest, b"", b"", b""))
    assert len(hashes) == 27
