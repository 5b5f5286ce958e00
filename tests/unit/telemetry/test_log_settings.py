"""What can be said about the log."""

import msgspec
import pytest

from palyra.telemetry.log import LogSettings


def test_the_defaults_are_for_people_and_other_words_are_refused() -> None:
    assert LogSettings() == LogSettings(format="text", level="info")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"format": "xml"}, LogSettings)
