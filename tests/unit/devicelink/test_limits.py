import pytest

from palyra.devicelink import limits
from palyra.devicelink.pairing.code import NAMEPLATE_DIGITS, PIN_DIGITS


def test_there_are_far_more_nameplates_than_codes_on_record():
    assert limits.MAX_LIVE_CODES + limits.MAX_ENDED_CODES < 10**NAMEPLATE_DIGITS // 5


def test_a_code_is_guessed_less_than_once_in_ten_million():
    assert limits.MAX_WRONG_GUESSES / 10**PIN_DIGITS < 1e-7


@pytest.mark.promise("P-pairing-code")
def test_the_default_life_of_a_code_is_within_its_bounds():
    assert limits.MIN_CODE_TTL_SECONDS <= limits.DEFAULT_CODE_TTL_SECONDS <= limits.MAX_CODE_TTL_SECONDS


def test_the_largest_request_fits_its_body_and_an_attempt_its_time():
    assert limits.MAX_CSR_BYTES * 4 // 3 + 2_048 < limits.MAX_PAIRING_BODY_BYTES
    assert limits.PAIRING_REQUEST_SECONDS < limits.PAIRING_SESSION_SECONDS
