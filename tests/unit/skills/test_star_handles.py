"""A handle with a star: the host and channel that a guest names."""

import pytest

from palyra.skills.package.capabilities import channel_meant, host_meant, host_named
from palyra.wasm.domain.host_interface import HostRefusal, Status


@pytest.mark.parametrize(
    ("granted", "path", "host", "rest"),
    [
        ("api.test", "/v1", "api.test", "/v1"),
        ("api.test:8443", "//a.api.test/v1", "api.test:8443", "//a.api.test/v1"),
        ("*.api.test", "//A.api.test/v1?q=//x", "a.api.test", "/v1?q=//x"),
        ("*.api.test", "//a.api.test:80/", "a.api.test:80", "/"),
        ("*.api.test:8443", "//a.b.api.test/", "a.b.api.test:8443", "/"),
        ("*.api.test", "//a.api.test", "a.api.test", "/"),
    ],
)
def test_the_host_of_a_request(granted: str, path: str, host: str, rest: str) -> None:
    rule, found = host_meant(granted, path)
    assert (str(rule), found) == (host, rest)


@pytest.mark.parametrize(
    ("granted", "path", "status"),
    [
        ("*.api.test", "/v1", Status.BAD_REQUEST),
        ("*.api.test", "//*.api.test/", Status.BAD_REQUEST),
        ("*.api.test", "//a.api.test:0/", Status.BAD_REQUEST),
        ("*.api.test", "//api.test/", Status.DENIED),
        ("*.api.test", "//a.api.test:8443/", Status.DENIED),
        ("*.api.test", "//[::1]/", Status.DENIED),
    ],
)
def test_what_does_not_fit_the_grant_is_refused(granted: str, path: str, status: Status) -> None:
    with pytest.raises(HostRefusal) as refused:
        host_meant(granted, path)
    assert refused.value.status is status


def test_the_host_of_a_request_as_it_is_shown() -> None:
    assert host_named("api.test:8443", "//other.test/") == "api.test:8443"
    assert host_named("*.api.test", "//A.api.test:8443/v1") == "A.api.test:8443"
    assert host_named("*.api.test", "/v1") == "*.api.test"


def test_the_channel_of_a_message() -> None:
    assert channel_meant("alerts", "first\nsecond") == ("alerts", "first\nsecond")
    assert channel_meant("*", "alerts\nfirst\nsecond") == ("alerts", "first\nsecond")
    for odd in ("", "\nx", "Alerts\nx", "*\nx", "a" * 10_000 + "\nx"):
        with pytest.raises(HostRefusal):
            channel_meant("*", odd)
