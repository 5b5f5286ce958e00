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
    arguments_days: Annotated[
        int, Meta(ge=0, le=36_500), describe("Days for which arguments are kept whole, sealed; 0 keeps none.")
    ] = limits.DEFAULT_ARGUMENTS_DAYS
    arguments_bytes: Annotated[
        int,
        Meta(ge=limits.MIB, le=2**53 - 1),
        describe("Space for kept arguments; one principal may fill half of it in a day."),
    ] = limits.DEFAULT_ARGUMENTS_BYTES
