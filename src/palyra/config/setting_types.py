"""The tree of settings: sections, keys, defaults, bounds, and one line on each.

The types are the single source: validation, ``palyra config show`` and the reference page are all read from them.
"""

from typing import Annotated, Final

from msgspec import Meta

from palyra import limits
from palyra.errors import InvalidInput

ENV_PREFIX: Final = "PALYRA_"
ENV_SEPARATOR: Final = "__"


class InvalidSetting(InvalidInput):
    code = "config.invalid_value"
    hint = "docs/reference/configuration.md lists every setting with its type and default"


def describe(description: str) -> Meta:
    return Meta(description=description)


Pattern = Annotated[str, Meta(min_length=1, max_length=limits.MAX_PRINCIPAL_CHARS)]
Patterns = tuple[Pattern, ...]
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Millis = Annotated[int, Meta(ge=1, le=limits.MAX_CALL_TIMEOUT_MS)]
