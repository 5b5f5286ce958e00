"""How identity refuses. What a device itself is told is decided where it connects; these words are for the operator."""

from palyra.errors import Denied, InvalidInput, LimitExceeded, Tampered, Unavailable
from palyra.identity.limits import MAX_CSR_BYTES, MAX_DEVICES, MAX_LIVE_CERTIFICATES


class UnknownCertificate(Denied):
    code = "identity.unknown_certificate"
    hint = "the certificate is none that this daemon knows: pair the device again"
    http_status = 401


class UnknownDevice(InvalidInput):
    code = "identity.unknown_device"
    hint = "`palyra identity show` lists the devices there are"
    http_status = 404


class DeviceRevoked(Denied):
    code = "identity.revoked"
    hint = "an operator ended this device's access; pair it again if that was a mistake"


class DeviceLocked(Denied):
    """Two parties hold this device's identity, or one lost its place. Nobody can tell which is the true one."""

    code = "identity.locked"
    hint = "find out whether its key was copied, revoke it, and pair the device again"


class CertificateExpired(Denied):
    code = "identity.expired"
    hint = "the device was away for longer than its certificate lives: pair it again"


class CertificateSuperseded(Denied):
    """An older certificate after a newer one of the same device was used."""

    code = "identity.superseded"
    hint = "the device has a newer certificate; if it does not know of one, somebody else renewed in its name"


class StaleGeneration(DeviceLocked):
    """Raised once, by the request that shows it; afterwards the device is simply locked."""

    code = "identity.stale_generation"


class GenerationAhead(InvalidInput):
    """A message that claims a newer certificate than the one the connection was made with."""

    code = "identity.generation_ahead"
    hint = "connect with the newer certificate first"


class AlreadyIssued(Denied):
    """A first certificate is given once; the same key gets the same answer, another key none."""

    code = "identity.already_issued"
    hint = "pair the device again, under a new id"


class CsrMalformed(InvalidInput):
    code = "identity.csr_malformed"
    hint = "send a PKCS#10 certificate request in DER"


class CsrTooLarge(LimitExceeded):
    code = "identity.csr_too_large"
    hint = f"a certificate request has at most {MAX_CSR_BYTES} bytes"
    http_status = 413


class CsrBadSignature(InvalidInput):
    """Whoever asks does not hold the key they ask for."""

    code = "identity.csr_bad_signature"
    hint = "sign the request with the key it is for"


class CsrWrongKey(InvalidInput):
    code = "identity.csr_wrong_key"
    hint = "use an ECDSA key on P-256"


class CsrAsksForAuthority(Denied):
    code = "identity.csr_asks_for_authority"
    hint = "a device is no authority: leave basic constraints out of the request"


class CsrAsksForNames(Denied):
    code = "identity.csr_asks_for_names"
    hint = "the daemon names the device: leave alternative names out of the request"


class CsrAsksForMore(Denied):
    code = "identity.csr_asks_for_more"
    hint = "a request carries a key and nothing else: leave extensions and attributes out"


class TooManyDevices(LimitExceeded):
    code = "identity.too_many_devices"
    hint = f"revoke some: a daemon knows {MAX_DEVICES}"


class TooManyCertificates(LimitExceeded):
    code = "identity.too_many_certificates"
    hint = f"a device may have {MAX_LIVE_CERTIFICATES} certificates that have not ended; wait until one has"


class BadServerName(InvalidInput):
    code = "identity.bad_server_name"
    hint = "name hosts by DNS name or address, without a port"


class NoAuthority(InvalidInput):
    code = "identity.no_authority"
    hint = "nothing to replace: the first pairing code or paired device makes the authority"
    http_status = 404


class RotationRunning(Denied):
    code = "identity.rotation_running"
    hint = "the authority before is still trusted; `palyra identity show` says until when"
    http_status = 409


class NotOpened(Unavailable):
    """A fault in the program that uses the manager: what needs an authority comes after ``open``."""

    code = "identity.not_opened"
    hint = "this is a fault in Palyra: the authority was asked for before it was opened"


class AuthorityUnavailable(Unavailable):
    code = "identity.authority_unavailable"
    hint = "the authorities change faster than their keys can be loaded: look who else uses this state directory"


class IdentityTampered(Tampered):
    """What is stored is not what was stored: a changed bit, or a record from elsewhere."""

    code = "identity.tampered"
    hint = "somebody changed the database; compare with `palyra journal verify` and a backup"
