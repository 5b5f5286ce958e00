"""What a device checks of a server that it does not trust yet: that its certificate is of the authority it names.

That alone proves nothing, since anybody has an authority. The authority's hash is checked against the code, or
confirmed by the proof, and then it is trusted.
"""

import datetime
import hashlib
import ssl
from typing import Final

from palyra.errors import Denied

_END: Final = "-----END CERTIFICATE-----"


class WrongServer(Denied):
    code = "pairing.wrong_server"
    hint = "this is not the daemon that made the code, or somebody is between you and it: do not go on"


def certificate_hash(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def certificates_in(bundle_pem: bytes) -> list[bytes]:
    """Each certificate of a bundle, in DER."""
    parts = bundle_pem.decode("ascii", "replace").split(_END)[:-1]
    return [ssl.PEM_cert_to_DER_cert(part.strip() + "\n" + _END + "\n") for part in parts]


def pem_of(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode()


def require_issued_by(leaf_der: bytes, ca_der: bytes, *, now: datetime.datetime) -> None:
    """Raises WrongServer unless the leaf is valid now and directly issued by the authority, which is one."""
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
        raise WrongServer("the server's certificate is not for a server, or its authority is none")
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        raise WrongServer(
            "the server's certificate is not valid at this time", hint="check the clocks of both machines"
        )
