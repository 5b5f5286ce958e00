"""Settings of policy."""

from typing import Annotated

import msgspec

from palyra.config.setting_types import describe


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dir: Annotated[str, describe("Folder of `*.cedar` files; empty means `policies` beside the settings file.")] = ""
