import pytest

from palyra.egress.domain.credential import BadBinding, CredentialBindingPlan, fill_placeholders, find_placeholders
from palyra.egress.domain.refusal import CredentialMissing, CredentialNotAllowed
from palyra.egress.domain.rules import BadHostRule
from palyra.egress.domain.target import Target

API = Target("https", "api.example", 443)


def plan(**more: object) -> CredentialBindingPlan:
    fields = {"header_name": "Authorization", "secret_ref": "global/key", "hosts": ("api.example",), **more}
    return CredentialBindingPlan(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("binding", "target", "method", "path"),
    [
        (plan(), API, "GET", "/"),
        (plan(), API, "DELETE", "/a//b/../c%2f?x=1"),
        (plan(methods=("GET",)), API, "GET", "/x"),
        (plan(path_prefix="/v1"), API, "GET", "/v1"),
        (plan(path_prefix="/v1"), API, "GET", "/v1/x?y=../z//"),
        (plan(path_prefix="/v1/"), API, "GET", "/v1/x"),
        (plan(path_prefix="/v1/"), API, "GET", "/v1"),
        (plan(hosts=("*.api.example:8443",)), Target("https", "a.api.example", 8443), "GET", "/"),
    ],
)
def test_covered(binding: CredentialBindingPlan, target: Target, method: str, path: str) -> None:
    binding.check()
    assert binding.covers(target, method, path)


@pytest.mark.parametrize(
    ("binding", "target", "method", "path"),
    [
        (plan(), Target("https", "evil.example", 443), "GET", "/"),
        (plan(), Target("https", "api.example", 8443), "GET", "/"),
        (plan(), Target("https", "notapi.example", 443), "GET", "/"),
        (plan(methods=("GET",)), API, "POST", "/x"),
        (plan(methods=("GET",)), API, "get", "/x"),
        (plan(path_prefix="/v1"), API, "GET", "/v10"),
        (plan(path_prefix="/v1"), API, "GET", "/V1/x"),
        (plan(path_prefix="/v1"), API, "GET", "/"),
        (plan(path_prefix="/v1"), API, "OPTIONS", "*"),
        (plan(), API, "OPTIONS", "*"),
        (plan(), API, "GET", "http://api.example/"),
    ],
)
def test_not_covered(binding: CredentialBindingPlan, target: Target, method: str, path: str) -> None:
    assert not binding.covers(target, method, path)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/../admin", "/v1/./x", "/v1/..", "/v1/.", "/v1//x", "//v1/x", "/v1/%2e%2e/x", "/v1/..%2fadmin"),
        *("/v1/a%2Fb", "/v1/%5c..", "/v1\\..\\x", "/v1/%252e%252e/", "/v1/x%00", "/v1/a b", "/v1/..;/admin"),
    ],
)
def test_a_path_that_can_be_read_as_another_is_refused(path: str) -> None:
    with pytest.raises(CredentialNotAllowed):
        plan(path_prefix="/v1").covers(API, "GET", path)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"header_name": each} for each in ("", "a b", "a:b", "Host", "content-length", "Connection", "x" * 200)),
        *({"secret_ref": each} for each in ("", "key", "global/", "/key", "global/a/b", "a b/c", "x/" + "y" * 300)),
        *({"hosts": each} for each in ((),)),
        *({"methods": each} for each in (("get",), ("G ET",), ("",))),
        *({"path_prefix": each} for each in ("", "v1", "/v1/../x", "/a//b", "/a?b", "/%2e", "/.", "/" + "a" * 2_000)),
        {"prefix": "Bearer\r\nX: "},
    ],
)
def test_bad_bindings(wrong: dict[str, object]) -> None:
    with pytest.raises(BadBinding):
        plan(**wrong).check()


def test_a_binding_with_a_bad_host_is_refused() -> None:
    with pytest.raises(BadHostRule):
        plan(hosts=("*",)).check()


def test_scopes_of_the_vault_are_references() -> None:
    for ref in ("global/key", "principal:agent:bot-1/github", "channel:cli/k", "skill:org.name/k.v2"):
        plan(secret_ref=ref).check()


def test_placeholders_are_found_once_each_and_filled_in_one_pass() -> None:
    text = "Bearer {{vault:global/a}}-{{vault:global/b}}-{{vault:global/a}} {{vault:}} {{other}} {{vault:x"
    assert find_placeholders(text) == ("global/a", "global/b")
    filled = fill_placeholders(text, {"global/a": "{{vault:global/b}}", "global/b": "\\1"})
    assert filled == "Bearer {{vault:global/b}}-\\1-{{vault:global/b}} {{vault:}} {{other}} {{vault:x"


def test_a_secret_cannot_begin_another_header() -> None:
    for secret in ("a\r\nX: y", "a\nb", "a\0b", "é"):
        with pytest.raises(CredentialNotAllowed) as refusal:
            fill_placeholders("{{vault:global/a}}", {"global/a": secret})
        assert secret not in str(refusal.value.as_dict())


def test_a_placeholder_without_a_secret_does_not_go_out() -> None:
    with pytest.raises(CredentialMissing):
        fill_placeholders("{{vault:global/a}}", {})
