"""The header is ours: set for the requests that a binding covers, and never the caller's own."""

import pytest

from palyra.egress.domain.credential import CredentialBindingPlan
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.header_rules import Headers
from palyra.egress.domain.injection import InjectionPlan, inject, plan_injection, secret_patterns
from palyra.egress.domain.refusal import CredentialNotAllowed
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_SECRET_BYTES
from palyra.secret import Secret

TARGET = Target.from_url("https://api.example.com/")
OTHER = Target.from_url("https://other.example.com/")
BEARER = CredentialBindingPlan(
    header_name="Authorization",
    secret_ref="global/token",
    hosts=("api.example.com",),
    prefix="Bearer ",
    methods=("GET", "POST"),
    path_prefix="/v1",
)
KEY = CredentialBindingPlan(header_name="X-Api-Key", secret_ref="global/key", hosts=("*.example.com",), required=False)
VALUES = {"global/token": Secret("token-value"), "global/key": Secret("key-value")}


def grant(*bindings: CredentialBindingPlan) -> EgressGrant:
    return EgressGrant(
        grant_id="g",
        principal="agent:a",
        run="r",
        call="c",
        tool="process.run",
        rules=parse_rules(("*.example.com",)),
        bindings=bindings,
    )


def sent(plan: InjectionPlan) -> Headers:
    return inject(plan, VALUES)


def test_a_covered_request_gets_its_header() -> None:
    plan = plan_injection(grant(BEARER), TARGET, "GET", "/v1/x?y", (("Host", "api.example.com"),))
    assert ("Authorization", "Bearer token-value") in sent(plan)


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/x"), ("GET", "/v2"), ("GET", "/v10")])
def test_an_uncovered_request_gets_none(method: str, path: str) -> None:
    plan = plan_injection(grant(BEARER), TARGET, method, path, ())
    assert sent(plan) == ()


def test_another_host_gets_none() -> None:
    assert sent(plan_injection(grant(BEARER), OTHER, "GET", "/v1", ())) == ()


@pytest.mark.parametrize("name", ["Authorization", "AUTHORIZATION", "authorization", "aUthorization"])
def test_the_callers_own_copy_is_dropped(name: str) -> None:
    plan = plan_injection(grant(BEARER), TARGET, "GET", "/v1", ((name, "Bearer mine"),))
    assert plan.dropped == (name,)
    assert [value for key, value in sent(plan) if key.lower() == "authorization"] == ["Bearer token-value"]


@pytest.mark.parametrize("name", ["x_api_key", "X_Api-Key", "x-api_KEY"])
def test_spellings_that_servers_fold_are_dropped_too(name: str) -> None:
    plan = plan_injection(grant(KEY), TARGET, "GET", "/", ((name, "mine"),))
    assert "mine" not in dict(sent(plan)).values()


def test_the_copy_is_dropped_where_the_binding_does_not_reach_too() -> None:
    plan = plan_injection(grant(BEARER), TARGET, "GET", "/v2", (("Authorization", "Bearer mine"),))
    assert sent(plan) == ()


def test_a_placeholder_is_filled_in_place() -> None:
    headers = (("authorization", "token {{vault:global/token}};v=2"),)
    plan = plan_injection(grant(BEARER), TARGET, "POST", "/v1", headers)
    assert ("Authorization", "token token-value;v=2") in sent(plan)


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        (TARGET, "X-Other", "{{vault:global/token}}"),
        (TARGET, "Authorization", "{{vault:global/key}}"),
        (TARGET, "Authorization", "{{vault:global/token}} {{vault:global/key}}"),
        (OTHER, "Authorization", "{{vault:global/token}}"),
    ],
)
def test_a_placeholder_goes_only_where_its_binding_says(target: Target, name: str, value: str) -> None:
    with pytest.raises(CredentialNotAllowed):
        plan_injection(grant(BEARER, KEY), target, "GET", "/v1", ((name, value),))


def test_an_injected_request_asks_for_a_reply_that_can_be_scanned() -> None:
    headers = (("Accept-Encoding", "gzip"), ("Range", "bytes=0-3"), ("Upgrade", "websocket"), ("Accept", "*/*"))
    plan = plan_injection(grant(BEARER), TARGET, "GET", "/v1", headers)
    assert sent(plan) == (
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
        ("Authorization", "Bearer token-value"),
    )


def test_without_injection_the_reply_may_be_compressed() -> None:
    headers = (("Accept-Encoding", "gzip"),)
    assert sent(plan_injection(grant(BEARER), TARGET, "GET", "/v2", headers)) == headers


def test_an_optional_secret_that_is_missing_is_left_out() -> None:
    plan = plan_injection(grant(KEY), TARGET, "GET", "/", ())
    assert inject(plan, {}) == (("Accept-Encoding", "identity"),)
    assert secret_patterns(plan, {}) == ()


@pytest.mark.promise("P-limits")
@pytest.mark.parametrize("value", ["short", "x" * (MAX_SECRET_BYTES + 1), "a\r\nX: y--", "naïve-token", "nul\0-token"])
def test_a_secret_that_is_no_header_is_not_injected(value: str) -> None:
    plan = plan_injection(grant(BEARER), TARGET, "GET", "/v1", ())
    with pytest.raises(CredentialNotAllowed) as raised:
        inject(plan, {"global/token": Secret(value)})
    assert value not in str(raised.value)


def test_what_must_not_come_back() -> None:
    plan = plan_injection(grant(BEARER, KEY), TARGET, "GET", "/v1", ())
    patterns = secret_patterns(plan, VALUES)
    assert b"token-value" in patterns
    assert b"key-value" in patterns


def test_the_first_of_two_bindings_for_a_header_wins() -> None:
    second = CredentialBindingPlan(header_name="authorization", secret_ref="global/key", hosts=("api.example.com",))
    plan = plan_injection(grant(BEARER, second), TARGET, "GET", "/v1", ())
    assert [one.secret_ref for one in plan.injections] == ["global/token"]


def test_without_tls_only_a_binding_that_names_the_port_applies() -> None:
    plain = Target.from_url("http://api.example.com/")
    with pytest.raises(CredentialNotAllowed, match="without TLS"):
        plan_injection(grant(BEARER), plain, "GET", "/v1", ())
    named = CredentialBindingPlan(
        header_name="X-Key", secret_ref="global/token", hosts=("api.example.com", "api.example.com:80")
    )
    with pytest.raises(CredentialNotAllowed, match="without TLS"):
        plan_injection(grant(named), plain, "GET", "/", ())
    explicit = CredentialBindingPlan(header_name="X-Key", secret_ref="global/token", hosts=("api.example.com:80",))
    assert ("X-Key", "token-value") in sent(plan_injection(grant(explicit), plain, "GET", "/", ()))
