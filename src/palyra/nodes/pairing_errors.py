"""What pairing refuses, each with its code. What a device is told says nothing that helps guessing."""

from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable


class UnknownCode(InvalidInput):
    code = "pairing.unknown_code"
    hint = "the code may have expired: `palyra pair code` at the daemon makes a new one"
    http_status = 404


class CodeBurned(Denied):
    code = "pairing.code_burned"
    hint = "too many wrong guesses made this code void: `palyra pair code` at the daemon makes a new one"


class CodeUsed(Denied):
    code = "pairing.code_used"
    hint = (
        "another device used this code. If that was not yours, reject its request with `palyra pair reject`,"
        " then make a new code"
    )


class TooManyCodes(LimitExceeded):
    code = "pairing.too_many_codes"
    hint = "wait until some have expired, or take some back with `palyra pair reject`"


class TooManyPairings(LimitExceeded):
    code = "pairing.too_many_pending"
    hint = "`palyra pair list` shows them: decide some first"


class TooManyDevices(LimitExceeded):
    code = "pairing.too_many_devices"
    hint = "revoke devices that are no longer used"


class UnknownPairing(InvalidInput):
    code = "pairing.unknown_request"
    hint = "`palyra pair list` shows what waits"
    http_status = 404


class WrongComparison(InvalidInput):
    code = "pairing.wrong_comparison_code"
    hint = "compare again; if the device shows another code than `palyra pair list`, reject the request"
    http_status = 409


class BadDeviceFacts(InvalidInput):
    code = "pairing.bad_device_facts"
    hint = "a device's name is 1 to 64 printable characters"


class BadCodeLife(InvalidInput):
    code = "pairing.bad_ttl"
    hint = "a code works for 30 seconds to 24 hours"


class SessionGone(InvalidInput):
    code = "pairing.session_gone"
    hint = "begin again with the same code; each attempt has a minute"
    http_status = 404


class NotListening(Unavailable):
    code = "pairing.not_listening"
    hint = "pairing needs a running daemon with nodes.enabled: `palyra up`"
