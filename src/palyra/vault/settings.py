"""Settings of the vault."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from palyra.config.setting_types import describe


class VaultSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key_source: Annotated[
        Literal["file", "keyring", "passphrase", "environment"],
        describe("Where the key that protects all secrets comes from."),
    ] = "file"
    key_file: Annotated[
        str, describe("The key file, outside the state directory; empty means `vault.key` beside the settings file.")
    ] = ""
    passphrase_file: Annotated[
        str,
        describe("A file with the passphrase, mode 0600; while it is changed, the new one and the old one in lines."),
    ] = ""
    passphrase_fd: Annotated[
        int, Meta(ge=-1, le=1023), describe("An open descriptor to read the passphrase from; -1 means none.")
    ] = -1
