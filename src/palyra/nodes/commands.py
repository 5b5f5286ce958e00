"""What the daemon says to a device, as values: the adapters give them the form they travel in."""

import msgspec


class Dispatch(msgspec.Struct, frozen=True):
    request_id: str
    capability: str
    input_json: bytes
    # How long the device may take from now on.
    timeout_ms: int
    max_result_bytes: int


class Cancel(msgspec.Struct, frozen=True):
    request_id: str
    reason: str


class CertificateNews(msgspec.Struct, frozen=True):
    """The authorities changed; a renewal brings a certificate of the new one."""

    ca_bundle_pem: bytes
    renew_now: bool


class Goodbye(msgspec.Struct, frozen=True):
    code: str
    message: str


Command = Dispatch | Cancel | CertificateNews | Goodbye
