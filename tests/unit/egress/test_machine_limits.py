"""The bounds fit each other: what one machine lets through, the next can hold."""

from palyra.egress import limits


def test_a_head_has_room_for_the_longest_target_and_ordinary_headers() -> None:
    assert limits.MAX_TARGET_BYTES + 16 * limits.MAX_HEADERS < limits.MAX_HEAD_BYTES < limits.MAX_EARLY_BYTES
    assert limits.MAX_FIRST_LINE_BYTES <= limits.MAX_HEAD_BYTES


def test_lengths_stay_exact_in_a_double_and_chunks_in_32_bits() -> None:
    assert 10**limits.MAX_CONTENT_LENGTH_DIGITS < 2**53
    assert 2**31 - 1 == limits.MAX_CHUNK_BYTES < 16**limits.MAX_CHUNK_SIZE_DIGITS
    assert 16 ** (limits.MAX_CHUNK_SIZE_DIGITS - 1) <= limits.MAX_CHUNK_BYTES


def test_a_hello_fits_one_record_and_a_record_is_what_tls_allows() -> None:
    assert limits.MAX_CLIENT_HELLO_BYTES <= limits.MAX_RECORD_BYTES == 2**14


def test_synthetic_addresses_stay_in_their_sixteen_bits() -> None:
    assert limits.MAX_SYNTHETIC_NAMES <= 254 * 256
    assert limits.MAX_DNS_QUERY_BYTES <= limits.DNS_UDP_BYTES
