"""Certificate authority of one run: it vouches only for hosts that have a credential binding.

Its key never leaves memory and dies with the run. Name constraints keep it from vouching for any other host even if
the key were taken, in every client that checks them.
"""

import datetime
import ipaddress
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from palyra.egress.domain.target import is_address
from palyra.egress.limits import CERTIFICATE_BACKDATE_MINUTES, CERTIFICATE_DAYS, MAX_BOUND_HOSTS
from palyra.errors import LimitExceeded

# HTTP/2 would need a parser of its frames; every client falls back to this.
ALPN: Final = ["http/1.1"]


class TooManyBoundHosts(LimitExceeded):
    code = "egress.too_many_bound_hosts"
    hint = f"one run terminates TLS for at most {MAX_BOUND_HOSTS} hosts"


class RunAuthority:
    """``hosts`` are the names (or suffixes ``.example.com``) it may vouch for."""

    def __init__(self, label: str, hosts: tuple[str, ...], *, now: datetime.datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        # One key for all its hosts: they end in this process alone, and making a key for each costs time.
        self._host_key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign_own(label, hosts)
        self._contexts: dict[str, ssl.SSLContext] = {}

    def pem(self) -> bytes:
        return self._certificate.public_bytes(Encoding.PEM)

    def bundle(self, system: bytes) -> bytes:
        """Add this authority to the system's, by which hosts without a binding are still checked."""
        separator = b"" if not system or system.endswith(b"\n") else b"\n"
        return system + separator + self.pem()

    def context_for(self, host: str) -> ssl.SSLContext:
        """Return a server's TLS context for one host, made at its first connection."""
        if host not in self._contexts:
            if len(self._contexts) >= MAX_BOUND_HOSTS:
                raise TooManyBoundHosts(f"{host} would be one host too many")
            self._contexts[host] = self._server_context(host)
        return self._contexts[host]

    def _server_context(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        chain = self._issue(host).public_bytes(Encoding.PEM) + self.pem()
        key = self._host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with _nameless_file(chain + key) as path:
            context.load_cert_chain(path)
        return context

    def _sign_own(self, label: str, hosts: tuple[str, ...]) -> x509.Certificate:
        name = _name(f"Palyra run {label}"[:64])
        permitted = [_general_name(host) for host in hosts]
        # Constraints hold for the kinds of names they list: without an address among the hosts, exclude all addresses.
        excluded = None if any(map(is_address, hosts)) else [_general_name("0.0.0.0/0"), _general_name("::/0")]
        builder = self._begin(name, name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        if permitted:
            builder = builder.add_extension(
                x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=excluded), critical=True
            )
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())

    def _issue(self, host: str) -> x509.Certificate:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            self._begin(_name("Palyra"), self._certificate.subject, self._host_key)
            .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _begin(self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(minutes=CERTIFICATE_BACKDATE_MINUTES))
            .not_valid_after(self._now + datetime.timedelta(days=CERTIFICATE_DAYS))
        )


@contextmanager
def _nameless_file(content: bytes) -> Iterator[str]:
    """Yield a path to the content: the ssl module reads keys from files only. It is on no disk."""
    with os.fdopen(os.memfd_create("palyra-run-ca", os.MFD_CLOEXEC), "wb") as memory:
        memory.write(content)
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _general_name(host: str) -> x509.GeneralName:
    """Return a constraint: a name covers itself and all names below, ``.example.com`` only those below."""
    try:
        return x509.IPAddress(ipaddress.ip_network(host))
    except ValueError:
        return x509.DNSName(host)
