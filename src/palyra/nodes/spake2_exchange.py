"""The password-authenticated exchange by the ``spake2`` package, imported on first use.

The package turns whatever bytes it is given into a scalar by HKDF, so it is given the stretched code: the daemon needs
nothing else, and never has the code again after it was shown. It is not written to take constant time; the five guesses
that a code lives for are too few to measure anything by.
"""

from typing import Any

from palyra.nodes.pairing_proof import DAEMON_ID, DEVICE_ID, MalformedProof
from palyra.nodes.records import StretchedCode


class DeviceExchange:
    def __init__(self, stretched: StretchedCode) -> None:
        from spake2 import SPAKE2_A

        self._side = SPAKE2_A(stretched.hash, idA=DEVICE_ID, idB=DAEMON_ID)

    def start(self) -> bytes:
        message: bytes = self._side.start()
        return message

    def finish(self, message: bytes) -> bytes:
        return _finish(self._side, message)


class DaemonExchange:
    def __init__(self, stretched: StretchedCode) -> None:
        from spake2 import SPAKE2_B

        self._side = SPAKE2_B(stretched.hash, idA=DEVICE_ID, idB=DAEMON_ID)

    def start(self) -> bytes:
        message: bytes = self._side.start()
        return message

    def finish(self, message: bytes) -> bytes:
        return _finish(self._side, message)


def _finish(side: Any, message: bytes) -> bytes:
    from spake2.ed25519_basic import NotOnCurve
    from spake2.spake2 import SPAKEError

    try:
        key: bytes = side.finish(message)
    except (SPAKEError, NotOnCurve, ValueError, AssertionError) as error:
        raise MalformedProof("a message of the exchange is none of the other side's") from error
    return key
