"""The settings of device identity."""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.config.setting_types import describe
from palyra.identity import limits as identity


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    certificate_seconds: Annotated[
        int,
        Meta(ge=identity.MIN_CERTIFICATE_SECONDS, le=identity.MAX_CERTIFICATE_SECONDS),
        describe("Life of a device's certificate, which renews itself; one that was away for longer is paired again."),
    ] = identity.DEFAULT_CERTIFICATE_SECONDS
