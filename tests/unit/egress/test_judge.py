import pytest

from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.refusal import AddressForbidden, HostNotAllowed, NameUnresolved, PeerChanged
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target

OWN = frozenset({"9.9.9.9"})
SERVICE = EgressProxyPolicyService(lambda: OWN)
SITE = Target("https", "ok.example", 443)
INNER = Target("tcp", "db.example", 5432)


def grant(*rules: str, private: tuple[str, ...] = (), any_public_host: bool = False) -> EgressGrant:
    return EgressGrant(
        grant_id="g",
        principal="agent:a",
        run="r",
        call="c",
        tool="http.fetch",
        rules=parse_rules(rules),
        private_targets=parse_rules(private),
        any_public_host=any_public_host,
    )


GRANT = grant("ok.example", "*.sub.example:443", "db.example:5432", "8.8.8.8", "10.0.0.5", private=("db.example:5432",))


def test_the_rule_that_allows_is_told() -> None:
    assert str(SERVICE.judge_target(GRANT, SITE)) == "ok.example"
    assert str(SERVICE.judge_target(GRANT, Target("https", "a.sub.example", 443))) == "*.sub.example:443"
    assert str(SERVICE.judge_target(GRANT, Target("http", "8.8.8.8", 80))) == "8.8.8.8"


@pytest.mark.parametrize(
    ("host", "port"),
    [
        *(("evil.example", 443), ("evilok.example", 443), ("ok.example.evil.example", 443), ("a.ok.example", 443)),
        *(("sub.example", 443), ("a.sub.example", 80), ("ok.example", 22), ("db.example", 443), ("8.8.4.4", 80)),
    ],
)
def test_what_no_rule_allows_is_refused(host: str, port: int) -> None:
    with pytest.raises(HostNotAllowed) as refusal:
        SERVICE.judge_target(GRANT, Target("tcp", host, port))
    assert (refusal.value.refusal().host, refusal.value.refusal().port) == (host, port)


def test_the_message_says_when_only_the_port_is_wrong() -> None:
    with pytest.raises(HostNotAllowed, match="allowed on port 80, 443 and not on 22"):
        SERVICE.judge_target(GRANT, Target("tcp", "ok.example", 22))


def test_an_empty_grant_allows_nothing() -> None:
    with pytest.raises(HostNotAllowed):
        SERVICE.judge_target(grant(), SITE)


def test_a_rule_alone_does_not_open_a_private_address() -> None:
    with pytest.raises(AddressForbidden):
        SERVICE.judge_target(GRANT, Target("http", "10.0.0.5", 80))
    opened = grant("10.0.0.5", private=("10.0.0.5",))
    assert SERVICE.judge_target(opened, Target("http", "10.0.0.5", 80))
    with pytest.raises(HostNotAllowed):
        SERVICE.judge_target(grant(private=("10.0.0.5",)), Target("http", "10.0.0.5", 80))


def test_answers_become_a_pin_in_one_spelling() -> None:
    pin = SERVICE.judge_answers(GRANT, SITE, ("93.184.216.34", "2A00:0::1", "93.184.216.34"))
    assert pin.target == SITE and pin.addresses == ("93.184.216.34", "2a00::1")


@pytest.mark.parametrize(
    "bad", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "9.9.9.9", "fe80::1%eth0", "junk"]
)
@pytest.mark.parametrize("first", [True, False])
def test_one_bad_answer_refuses_all(bad: str, first: bool) -> None:
    answers = (bad, "93.184.216.34") if first else ("93.184.216.34", bad)
    with pytest.raises(AddressForbidden) as refusal:
        SERVICE.judge_answers(GRANT, SITE, answers)
    assert refusal.value.details["address"] == bad and refusal.value.refusal().host == "ok.example"


def test_no_answer_is_a_refusal() -> None:
    with pytest.raises(NameUnresolved):
        SERVICE.judge_answers(GRANT, SITE, ())


def test_a_private_target_is_opened_on_its_port_and_never_to_metadata() -> None:
    assert SERVICE.judge_answers(GRANT, INNER, ("10.0.0.7", "127.0.0.1", "9.9.9.9")).addresses
    for address in ("169.254.169.254", "fd00:ec2::254", "169.254.1.1", "100.64.0.1", "::ffff:10.0.0.7"):
        with pytest.raises(AddressForbidden):
            SERVICE.judge_answers(GRANT, INNER, ("10.0.0.7", address))
    with pytest.raises(AddressForbidden):
        SERVICE.judge_answers(GRANT, Target("tcp", "db.example", 443), ("10.0.0.7",))


def test_an_address_is_its_own_only_answer() -> None:
    target = Target("http", "8.8.8.8", 80)
    assert SERVICE.judge_answers(GRANT, target, ("8.8.8.8",)).addresses == ("8.8.8.8",)
    with pytest.raises(AddressForbidden):
        SERVICE.judge_answers(GRANT, target, ("8.8.4.4",))


def test_the_peer_must_be_a_pinned_address() -> None:
    pin = SERVICE.judge_answers(GRANT, SITE, ("93.184.216.34", "2a00::1"))
    SERVICE.confirm_peer(pin, "93.184.216.34")
    SERVICE.confirm_peer(pin, "2a00:0:0::1")
    for peer in ("93.184.216.35", "127.0.0.1", "::ffff:93.184.216.34", "2a00::1%eth0", ""):
        with pytest.raises(PeerChanged):
            SERVICE.confirm_peer(pin, peer)


def test_own_addresses_are_asked_for_each_time() -> None:
    own: set[str] = set()
    service = EgressProxyPolicyService(lambda: frozenset(own))
    service.judge_answers(GRANT, SITE, ("93.184.216.34",))
    own.add("93.184.216.34")
    with pytest.raises(AddressForbidden):
        service.judge_answers(GRANT, SITE, ("93.184.216.34",))


def test_an_explanation_of_what_is_allowed() -> None:
    explained = SERVICE.explain(GRANT, INNER, ("10.0.0.7", "8.8.8.8"))
    assert explained.verdict == "allowed" and explained.code == ""
    assert [(step.name, step.outcome) for step in explained.steps] == [
        ("target", "passed"),
        ("rule", "passed"),
        ("private target", "passed"),
        ("resolution", "passed"),
        ("address 10.0.0.7", "passed"),
        ("address 8.8.8.8", "passed"),
    ]


def test_an_explanation_of_a_mixed_answer_names_the_bad_one() -> None:
    explained = SERVICE.explain(GRANT, SITE, ("8.8.8.8", "127.0.0.1"))
    assert (explained.verdict, explained.code) == ("refused", "egress.address_forbidden")
    assert [(step.outcome, step.detail) for step in explained.steps[-2:]] == [
        ("passed", "public"),
        ("refused", "loopback"),
    ]


@pytest.mark.parametrize(
    ("target", "answers", "verdict", "code"),
    [
        (SITE, None, "undecided", ""),
        (SITE, (), "refused", "egress.name_unresolved"),
        (Target("https", "evil.example", 443), None, "refused", "egress.host_not_allowed"),
        (Target("http", "8.8.8.8", 80), None, "allowed", ""),
        (Target("http", "10.0.0.5", 80), None, "refused", "egress.address_forbidden"),
    ],
)
def test_explanations_agree_with_verdicts(
    target: Target, answers: tuple[str, ...] | None, verdict: str, code: str
) -> None:
    explained = SERVICE.explain(GRANT, target, answers)
    assert (explained.verdict, explained.code) == (verdict, code)


WIDE = grant("db.example:5432", private=("db.example:5432", "inner.example:80"), any_public_host=True)


@pytest.mark.promise("P-net-addresses")
def test_any_public_host_is_off_unless_a_grant_says_so() -> None:
    assert not GRANT.any_public_host
    assert str(SERVICE.judge_target(WIDE, Target("https", "else.example", 443))) == "else.example:443"
    assert SERVICE.judge_answers(WIDE, SITE, ("8.8.8.8",)).addresses == ("8.8.8.8",)
    assert SERVICE.explain(WIDE, SITE, ("8.8.8.8",)).verdict == "allowed"


@pytest.mark.promise("P-net-addresses")
@pytest.mark.parametrize("port", [22, 25, 8080, 5432])
def test_any_public_host_opens_the_ports_of_the_web_only(port: int) -> None:
    with pytest.raises(HostNotAllowed):
        SERVICE.judge_target(WIDE, Target("tcp", "else.example", port))


@pytest.mark.promise("P-net-addresses")
@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.100.100.200", "::1", "fe80::1", "9.9.9.9", "0.0.0.0"]
)
def test_any_public_host_opens_no_address_that_is_not_public(address: str) -> None:
    with pytest.raises(AddressForbidden):
        SERVICE.judge_answers(WIDE, SITE, ("8.8.8.8", address))
    with pytest.raises(AddressForbidden):
        SERVICE.judge_target(WIDE, Target("http", address, 80))


def test_beside_any_public_host_a_private_target_still_needs_its_rule() -> None:
    assert SERVICE.judge_answers(WIDE, INNER, ("10.0.0.1",)).addresses == ("10.0.0.1",)
    inner = Target("http", "inner.example", 80)
    with pytest.raises(AddressForbidden):
        SERVICE.judge_answers(WIDE, inner, ("10.0.0.1",))
    assert SERVICE.explain(WIDE, inner, ("10.0.0.1",)).verdict == "refused"
