"""The proof of a pairing code without sending it. Both sides are machines: messages in, messages out, no I/O.

A password-authenticated exchange (SPAKE2) over the stretched code gives both sides a key. Their confirmations are
bound to the whole conversation: the hash of the authority, the TLS certificate that the device saw, the certificate
request, the device's name and kind, the nameplate, and both messages. A man in the middle has another certificate, and
an attacker without the code has another key. In both cases the confirmation fails, and one guess is spent.

    daemon  -> hello    its message, salt, its authority          (reveals nothing about the code)
    device  -> answer   its message, its confirmation, its CSR    (the device confirms first: a false daemon learns only
    daemon  -> its confirmation                                    whether its one guess was right)
"""

import datetime
import hashlib
import hmac
import ssl
from enum import StrEnum
from typing import Any, Final

import msgspec

from palyra.devicelink.pairing.code import SALT_BYTES, DeviceFacts, PairingMethod, StretchedCode
from palyra.errors import Denied, InvalidInput
from palyra.identity.device import DeviceKind

PROTOCOL: Final = b"palyra.pairing.v1"
DEVICE_ID: Final = b"palyra device"
DAEMON_ID: Final = b"palyra daemon"
# A side byte and a point of Edwards 25519.
MESSAGE_BYTES: Final = 33
CONFIRMATION_BYTES: Final = 32
COMPARISON_DIGITS: Final = 6
_LENGTH_BYTES: Final = 4


class ProofState(StrEnum):
    FRESH = "fresh"
    SENT = "sent"
    ENDED = "ended"


class ProofEvent(StrEnum):
    SEND = "send"
    RECEIVE = "receive"


# Each side sends once and receives once. A machine ends with the first message it receives.
TRANSITIONS: Final[dict[tuple[ProofState, ProofEvent], ProofState]] = {
    (ProofState.FRESH, ProofEvent.SEND): ProofState.SENT,
    (ProofState.SENT, ProofEvent.RECEIVE): ProofState.ENDED,
}


class ProofOutOfOrder(Exception):
    """A programming error: a machine was used twice, or against its table."""


class WrongProof(Denied):
    """A wrong code, or a man in the middle. By design the two look the same."""

    code = "pairing.wrong_code"
    hint = "check the code; after five wrong ones it is void. If it was right, somebody is between you and the daemon"


class MalformedProof(InvalidInput):
    code = "pairing.malformed_proof"
    hint = "the other side does not speak this version of pairing"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a proof is bound to. Both sides must have the same ones."""

    method: PairingMethod
    kind: DeviceKind
    nameplate: str
    salt: bytes
    # SHA-256 of the DER of the authority and of the server's certificate, in hex.
    ca_hash: str
    leaf_hash: str
    csr_der: bytes
    facts: DeviceFacts


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that both sides share after a proof. With ``collect`` the device fetches the answer later."""

    comparison_code: str
    collect: bytes

    def __repr__(self) -> str:
        return "Proved([redacted])"


class DeviceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    message: bytes
    confirmation: bytes


class _Machine:
    def __init__(self, exchange: "DeviceExchange | DaemonExchange") -> None:
        self._exchange = exchange
        self.state = ProofState.FRESH

    def _step(self, event: ProofEvent) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise ProofOutOfOrder(f"a proof that is {self.state.value} cannot {event.value}") from None


class DaemonProof(_Machine):
    """The daemon's side of one attempt, which is one guess."""

    def hello(self) -> bytes:
        self._step(ProofEvent.SEND)
        self._message = self._exchange.start()
        return self._message

    def conclude(self, answer: DeviceAnswer, bound: Bound) -> tuple[bytes, Proved]:
        """Return the daemon's confirmation. Raise WrongProof, also for a malformed answer, which is a guess too."""
        self._step(ProofEvent.RECEIVE)
        try:
            key = self._exchange.finish(require_message(answer.message))
        except MalformedProof as error:
            raise WrongProof("the device did not prove the code") from error
        keys = _Keys(key, bound, self._message, answer.message)
        if not hmac.compare_digest(keys.device_confirmation, answer.confirmation):
            raise WrongProof("the device did not prove the code")
        return keys.daemon_confirmation, keys.proved()


class DeviceProof(_Machine):
    def answer(self, daemon_message: bytes, bound: Bound) -> DeviceAnswer:
        self._step(ProofEvent.SEND)
        if len(bound.salt) != SALT_BYTES:
            raise MalformedProof("the daemon's salt is not one")
        message = self._exchange.start()
        key = self._exchange.finish(require_message(daemon_message))
        self._keys = _Keys(key, bound, daemon_message, message)
        return DeviceAnswer(message=message, confirmation=self._keys.device_confirmation)

    def conclude(self, confirmation: bytes) -> Proved:
        """Check the daemon's confirmation. Raise WrongProof if the server does not know the code."""
        self._step(ProofEvent.RECEIVE)
        if not hmac.compare_digest(self._keys.daemon_confirmation, confirmation):
            raise WrongProof("the daemon did not prove that it knows the code")
        return self._keys.proved()


class _Keys:
    def __init__(self, key: bytes, bound: Bound, daemon_message: bytes, device_message: bytes) -> None:
        transcript = hashlib.sha256(transcript_of(bound, daemon_message, device_message)).digest()
        self._root = hmac.digest(transcript, key, "sha256")
        self.device_confirmation = self._derive(b"device confirms")
        self.daemon_confirmation = self._derive(b"daemon confirms")

    def proved(self) -> Proved:
        number = int.from_bytes(self._derive(b"comparison")) % 10**COMPARISON_DIGITS
        return Proved(comparison_code=f"{number:0{COMPARISON_DIGITS}d}", collect=self._derive(b"collect"))

    def _derive(self, label: bytes) -> bytes:
        return hmac.digest(self._root, PROTOCOL + b"\0" + label, "sha256")


def transcript_of(bound: Bound, daemon_message: bytes, device_message: bytes) -> bytes:
    """Encode each field after its length, so that two different conversations never have the same transcript."""
    fields = (
        PROTOCOL,
        bound.method.value.encode(),
        bound.kind.value.encode(),
        bound.nameplate.encode(),
        bound.salt,
        bound.ca_hash.encode(),
        bound.leaf_hash.encode(),
        bound.csr_der,
        bound.facts.name.encode(),
        bound.facts.platform.encode(),
        bound.facts.software_version.encode(),
        daemon_message,
        device_message,
    )
    return b"".join(len(field).to_bytes(_LENGTH_BYTES) + field for field in fields)


def require_message(message: bytes) -> bytes:
    if len(message) != MESSAGE_BYTES:
        raise MalformedProof(f"a message of the exchange has {MESSAGE_BYTES} bytes")
    return message


def collect_digest(collect: bytes) -> bytes:
    """Return the digest that the daemon stores."""
    return hashlib.sha256(collect).digest()


# A device checks that a server's certificate is issued by the authority that the server names.
#
# That alone proves nothing, since anybody can make an authority. Its hash is also compared with the one in the code, or
# confirmed by the proof; only then is it trusted.

_END: Final = "-----END CERTIFICATE-----"


class WrongServer(Denied):
    code = "pairing.wrong_server"
    hint = "this is not the daemon that made the code, or somebody is between you and it: do not go on"


def hash_certificate(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def split_bundle(bundle_pem: bytes) -> list[bytes]:
    """List the certificates of a bundle, in DER."""
    parts = bundle_pem.decode("ascii", "replace").split(_END)[:-1]
    return [ssl.PEM_cert_to_DER_cert(part.strip() + "\n" + _END + "\n") for part in parts]


def require_issued_by(leaf_der: bytes, ca_der: bytes, *, now: datetime.datetime) -> None:
    """Raise WrongServer unless the leaf is valid now and directly issued by a certificate authority."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        leaf, authority = x509.load_der_x509_certificate(leaf_der), x509.load_der_x509_certificate(ca_der)
        authority.verify_directly_issued_by(authority)
        leaf.verify_directly_issued_by(authority)
        is_authority = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound, x509.DuplicateExtension):
        raise WrongServer("the server's certificate is not one of the authority it names") from None
    if not is_authority or x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in uses:
        raise WrongServer("the server's certificate is not for a server, or its issuer is not an authority")
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        raise WrongServer(
            "the server's certificate is not valid at this time", hint="check the clocks of both machines"
        )


# The password-authenticated exchange by the ``spake2`` package, imported on first use.
#
# The package derives a scalar from its password by HKDF. The password is the stretched code, so the daemon keeps no
# code. The package does not take constant time, but a code allows five guesses: too few to measure.


class _Spake2Exchange:
    def __init__(self, side: Any) -> None:
        self._side = side

    def start(self) -> bytes:
        message: bytes = self._side.start()
        return message

    def finish(self, message: bytes) -> bytes:
        from spake2.ed25519_basic import NotOnCurve
        from spake2.spake2 import SPAKEError

        try:
            key: bytes = self._side.finish(message)
        except (SPAKEError, NotOnCurve, ValueError, AssertionError) as error:
            raise MalformedProof("a message of the exchange is not valid") from error
        return key


class DeviceExchange(_Spake2Exchange):
    def __init__(self, stretched: StretchedCode) -> None:
        from spake2 import SPAKE2_A

        super().__init__(SPAKE2_A(stretched.hash, idA=DEVICE_ID, idB=DAEMON_ID))


class DaemonExchange(_Spake2Exchange):
    def __init__(self, stretched: StretchedCode) -> None:
        from spake2 import SPAKE2_B

        super().__init__(SPAKE2_B(stretched.hash, idA=DEVICE_ID, idB=DAEMON_ID))
