"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated

import msgspec

from palyra.config.setting_types import describe


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dir: Annotated[str, describe("Folder of `*.cedar` files; empty means `policies` beside the settings file.")] = ""
