import pytest

from palyra.egress.domain.rules import BadHostRule, HostRule, find_rule, is_within, parse_rules


@pytest.mark.parametrize(
    ("rule", "host", "port"),
    [
        ("example.org", "example.org", None),
        ("example.org", "example.org", 80),
        ("example.org", "example.org", 443),
        ("EXAMPLE.org:443", "example.org", 443),
        ("example.org:443", "example.org", None),
        ("example.org:8080", "example.org", 8080),
        ("*.example.org", "a.example.org", 443),
        ("*.example.org", "a.b.example.org", None),
        ("*.example.org:22", "a.example.org", 22),
        ("[::1]:80", "::1", 80),
        ("[::1]", "::1", 443),
        ("127.0.0.1", "127.0.0.1", 80),
    ],
)
def test_covered(rule: str, host: str, port: int | None) -> None:
    assert HostRule.parse(rule).covers(host, port)


@pytest.mark.parametrize(
    ("rule", "host", "port"),
    [
        ("example.org", "a.example.org", None),
        ("example.org", "badexample.org", None),
        ("example.org", "example.org.evil", None),
        ("example.org", "example.org", 8080),
        ("example.org", "example.org", 22),
        ("example.org:443", "example.org", 80),
        ("*.example.org", "example.org", None),
        ("*.example.org", "badexample.org", None),
        ("*.example.org", "a.badexample.org", None),
        ("*.example.org", "a.example.org", 8080),
        ("*.example.org:443", "a.example.org", 80),
        ("127.0.0.1", "127.0.0.2", 80),
    ],
)
def test_not_covered(rule: str, host: str, port: int | None) -> None:
    assert not HostRule.parse(rule).covers(host, port)


@pytest.mark.parametrize(
    "rule",
    [
        *("", "*", "*.", "*.*", "*.org", "a*.example.org", "*.*.org", "*example.org", "a.*.org", "**.example.org"),
        *("example.org:", "example.org:0", "example.org:99999", "example.org:080", "example.org:+80", "example.org:*"),
        *("http://x.org", "u@x.org", "x.org/y", "*.0.0.1", "*.[::1]", "*.127.0.0.1", "127.1", "::1", "[::1", "a b"),
    ],
)
def test_bad_rules(rule: str) -> None:
    with pytest.raises(BadHostRule):
        HostRule.parse(rule)


@pytest.mark.parametrize("text", ["example.org", "example.org:22", "*.example.org:443", "[::1]:80", "10.0.0.1"])
def test_a_rule_prints_as_it_is_written(text: str) -> None:
    assert str(HostRule.parse(text)) == text


def test_an_empty_list_covers_nothing() -> None:
    assert find_rule((), "example.org", None) is None


def test_the_first_rule_that_covers_is_found() -> None:
    rules = parse_rules(("a.example.org:22", "*.example.org", "a.example.org"))
    assert find_rule(rules, "a.example.org", 443) == rules[1]
    assert find_rule(rules, "a.example.org", 22) == rules[0]
    assert find_rule(rules, "example.org", 443) is None


@pytest.mark.parametrize(
    ("rule", "ceiling", "within"),
    [
        ("a.example", ("a.example",), True),
        ("a.example", ("a.example:80", "a.example:443"), True),
        ("a.example", ("a.example:443",), False),
        ("a.example:443", ("a.example",), True),
        ("a.example:22", ("a.example",), False),
        ("b.a.example", ("*.a.example",), True),
        ("a.example", ("*.a.example",), False),
        ("*.a.example", ("*.a.example",), True),
        ("*.b.a.example", ("*.a.example",), True),
        ("*.a.example", ("*.b.a.example",), False),
        ("*.nota.example", ("*.a.example",), False),
        ("*.a.example", ("a.example",), False),
        ("a.example", (), False),
    ],
)
def test_a_rule_within_a_ceiling(rule: str, ceiling: tuple[str, ...], within: bool) -> None:
    assert is_within(HostRule.parse(rule), parse_rules(ceiling)) is within
