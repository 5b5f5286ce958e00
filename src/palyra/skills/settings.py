"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.config.setting_types import describe


class SkillsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    trust_on_first_use: Annotated[
        bool,
        describe(
            "Let unknown publishers' skills into quarantine; approving one pins publisher and skill id to its key."
        ),
    ] = False
    builder_enabled: Annotated[bool, describe("Whether `palyra skill builder` may make skills (experimental).")] = False
    builder_command: Annotated[
        tuple[str, ...],
        describe("Program and arguments that generate a skill: JSON in, JSON out; empty means the built-in templates."),
    ] = ()
    builder_timeout_seconds: Annotated[int, Meta(ge=1, le=3600), describe("How long that program may take.")] = 120
