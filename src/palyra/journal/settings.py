"""Settings of the journal."""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra import limits
from palyra.config.setting_types import Count, describe


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checkpoint_events: Annotated[Count, describe("Events after which a checkpoint is signed.")] = (
        limits.CHECKPOINT_EVERY_EVENTS
    )
    checkpoint_seconds: Annotated[
        float, Meta(gt=0, le=86_400), describe("Seconds after which a checkpoint is signed, if anything happened.")
    ] = limits.CHECKPOINT_EVERY_SECONDS
