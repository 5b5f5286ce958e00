import msgspec
import pytest

from palyra.devicelink.limits import MAX_INPUT_BYTES
from palyra.nodes.agent.messages import Dispatch, is_request_id, is_sound

GOOD = Dispatch(request_id="01J", capability="echo", input_json=b"{}", timeout_ms=1, max_result_bytes=1)


@pytest.mark.parametrize("text", ["", "../x", "a/b", "a.json", "a" * 65, "a\n", "é"])
def test_an_id_that_could_be_another_files_name_is_none(text: str) -> None:
    assert not is_request_id(text)


@pytest.mark.parametrize(
    "change",
    [
        {"request_id": "../../etc/cron.d/x"},
        {"capability": ""},
        {"capability": "a" * 65},
        {"input_json": b" " * (MAX_INPUT_BYTES + 1)},
        {"timeout_ms": 0},
    ],
)
def test_dispatches_that_no_honest_daemon_sends(change: dict[str, object]) -> None:
    assert is_sound(GOOD) and not is_sound(msgspec.structs.replace(GOOD, **change))
