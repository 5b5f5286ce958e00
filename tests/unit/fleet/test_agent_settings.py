import msgspec
import pytest

from palyra.fleet.domain.policy import WorkerAgentSettings
from palyra.fleet.limits import DEFAULT_SLOTS


def test_a_worker_has_sound_settings_without_any() -> None:
    settings = WorkerAgentSettings()
    assert settings.slots == DEFAULT_SLOTS and settings.egress_socket == ""


@pytest.mark.parametrize("bad", [{"slots": 0}, {"slots": 257}, {"image_digest_sha256": "nonsense"}, {"unknown": 1}])
def test_what_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, WorkerAgentSettings)
