"""The judge of a session's addresses: the guard's rules, asked of whole addresses in any of their odd spellings."""

import pytest

from fakes.egress_harness import make_grant
from palyra.browser.service.chromium_session_proxy import SessionRequestJudge, target_of
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import EgressRefused, HostNotAllowed

JUDGE = SessionRequestJudge(EgressProxyPolicyService(frozenset), make_grant("shop.example", "*.cdn.example:443"))


@pytest.mark.parametrize(
    "url",
    [
        *("https://shop.example/", "http://shop.example", "https://shop.example?q=1", "wss://shop.example/live"),
        *("https://a.cdn.example/x.js#y", "https://shop.example/" + "x" * 100_000, "ws://shop.example:80/"),
        "https://shop.example/a?u=http://evil.example\\@b",
    ],
)
async def test_what_the_rules_allow_passes(url: str) -> None:
    await JUDGE.judge_document(url)
    JUDGE.judge_request(url)


@pytest.mark.parametrize(
    "url",
    [
        *("https://evil.example/", "https://shop.example.evil.example/", "https://shop.example:8443/"),
        *(
            "https://user:pw@shop.example/",
            "https://evil.example#@shop.example/",
            "https://evil.example\\@shop.example/",
        ),
        *("file:///etc/passwd", "chrome://settings", "view-source:https://shop.example/", "data:text/html,x"),
        *("ftp://shop.example/", "http:shop.example", "//shop.example/", "http://shop%2eexample/", "http://0x7f.1/"),
        *("https:///shop.example/", "https://shop.example\n.evil.example/", "http://a.cdn.example/", ""),
    ],
)
async def test_everything_else_is_refused_with_a_code(url: str) -> None:
    with pytest.raises(EgressRefused):
        await JUDGE.judge_document(url)
    with pytest.raises(EgressRefused):
        JUDGE.judge_request(url)


def test_a_web_socket_is_judged_as_the_request_it_begins_with() -> None:
    assert str(target_of("wss://shop.example/x")) == "https://shop.example:443"
    with pytest.raises(HostNotAllowed):
        JUDGE.judge_request("ws://evil.example/")
