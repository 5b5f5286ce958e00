"""The name by which a certificate is known here: SHA-256 of the leaf in DER, as hex. And the two forms of a leaf."""

import base64
import binascii
import hashlib
from typing import Final

from palyra.identity.errors import UnknownCertificate

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
_PEM_LINE_CHARS: Final = 64


def fingerprint_of(pem_or_der: bytes) -> str:
    """Of a chain in PEM, the fingerprint of its first certificate."""
    return hashlib.sha256(der_of(pem_or_der)).hexdigest()


def der_of(pem_or_der: bytes) -> bytes:
    """The first certificate in DER. What a certificate says is not looked at."""
    start = pem_or_der.find(_BEGIN)
    if start < 0:
        return pem_or_der
    body, end, _ = pem_or_der[start + len(_BEGIN) :].partition(_END)
    try:
        if not end:
            raise binascii.Error
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error:
        raise UnknownCertificate("the certificate cannot be read") from None


def pem_of(certificate_der: bytes) -> bytes:
    body = base64.b64encode(certificate_der)
    lines = (body[start : start + _PEM_LINE_CHARS] for start in range(0, len(body), _PEM_LINE_CHARS))
    return b"\n".join((_BEGIN, *lines, _END, b""))
