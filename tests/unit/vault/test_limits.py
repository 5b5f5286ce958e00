from palyra.limits import KIB, MAX_HTTP_BODY_BYTES
from palyra.vault import limits


def test_the_bounds_fit_each_other() -> None:
    assert limits.MAX_VALUE_BYTES == 64 * KIB
    # The largest value, every byte of it escaped in JSON, still fits a request.
    assert 6 * limits.MAX_VALUE_BYTES < MAX_HTTP_BODY_BYTES
    assert limits.MIN_SCRYPT_N <= limits.SCRYPT_N <= limits.MAX_SCRYPT_N
    assert limits.SCRYPT_R <= limits.MAX_SCRYPT_R and limits.SCRYPT_P <= limits.MAX_SCRYPT_P
    # A full key file is read whole.
    assert limits.MAX_KEYS_IN_FILE * 160 < limits.MAX_KEY_FILE_BYTES
