"""What a device offers, and how it reads what it is given."""

import pytest

from palyra.devicelink.limits import MAX_INPUT_BYTES
from palyra.nodes import limits
from palyra.nodes.agent import offered
from palyra.nodes.agent.messages import BadCapabilityInput, Dispatch, OutputTooLarge
from palyra.nodes.agent.settings import CommandPlan
from palyra.nodes.domain.capability import accept_inventory
from palyra.nodes.domain.records import DeviceCapabilityView


def asked(input_json: bytes, max_result_bytes: int = 100) -> Dispatch:
    return Dispatch(
        request_id="R", capability="echo", input_json=input_json, timeout_ms=1, max_result_bytes=max_result_bytes
    )


def test_everything_offered_is_accepted_by_the_daemon() -> None:
    import json

    found = offered.list_offers({"lamp": CommandPlan(argv=("lamp",))}, ("open_url",))
    views = [
        DeviceCapabilityView(
            name=offer.name, description=offer.description, input_schema_json=json.dumps(offer.input_schema)
        )
        for offer in found.values()
    ]
    assert [view.name for view in accept_inventory(views, ())] == sorted(found)
    assert set(found) == {"system.health", "echo", "open_url", "notify", "command.lamp"}


def test_the_person_is_asked_where_the_owner_says_so_and_never_less_than_a_command_wants() -> None:
    found = offered.list_offers({"a": CommandPlan(argv=("a",)), "b": CommandPlan(argv=("b",), ask=False)}, ("not*",))
    assert {name for name, offer in found.items() if offer.local_mediation} == {"notify", "command.a"}


@pytest.mark.parametrize(
    "raw", [b"[]", b"7", b"{", b'{"a":1,"a":2}', b"\xff", b'{"a":' + b"x" * MAX_INPUT_BYTES + b"}", b'{"a":NaN}']
)
def test_an_input_that_is_not_one_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BadCapabilityInput):
        offered.read_input(asked(raw))


def test_no_input_is_an_empty_object() -> None:
    assert offered.read_input(asked(b"")) == {} == offered.read_input(asked(b"{}"))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "ssh://-oProxyCommand=x/",
        "--version",
        "https://",
        "https:///x",
        "https://user:pass@example.com/",
        "https://good.example@evil.example/",
        "https://example.com/\nx",
        "https://example.com/a b",
        "https://example.com\\@evil.example/",
        "https://[::1/",
        "https://example.com:99999999/",
        "http:example.com",
        "https://example.com/" + "a" * limits.MAX_URL_CHARS,
        "https://exämple.com/",
        7,
        "",
    ],
)
def test_only_plain_web_addresses_are_opened(url: object) -> None:
    with pytest.raises(BadCapabilityInput):
        offered.read_web_address({"url": url})


def test_plain_web_addresses_are_left_as_they_are() -> None:
    for url in ("http://example.com", "HTTPS://example.com:8443/a?b=c#d", "http://[::1]:80/"):
        assert offered.read_web_address({"url": url}) == url
    with pytest.raises(BadCapabilityInput):
        offered.read_web_address({"url": "http://example.com", "with": "x"})


def test_a_result_is_bounded_by_the_smallest_of_the_limits() -> None:
    assert (
        offered.compute_result_limit(asked(b"", 10), 20) == 10
        and offered.compute_result_limit(asked(b"", 30), 20) == 20
    )
    assert offered.compute_result_limit(asked(b"", 0), 2**40) == limits.MAX_RESULT_BYTES
    assert offered.encode_output({"a": "é"}, 10) == '{"a":"é"}'.encode()
    with pytest.raises(OutputTooLarge):
        offered.encode_output({"a": "é"}, 9)
    assert offered.compute_output_limit(0) == 0 and 2 * offered.compute_output_limit(1_000) < 1_000


def test_a_person_is_shown_as_much_as_one_reads() -> None:
    capability, shown = offered.format_question(asked(b'"' + b"x" * 5_000 + b'"'))
    assert capability == "echo" and shown.endswith("(more)") and len(shown) < limits.MAX_SHOWN_INPUT_CHARS + 20
    assert offered.format_question(asked(b"{}"))[1] == "{}"
