import pytest

from palyra.skills.package.manifest import MalformedVersion, Version

IN_ORDER = [
    "0.0.1",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.10",
    "1.2.0",
    "2.0.0",
]


def test_versions_are_ordered_as_the_standard_says() -> None:
    parsed = [Version.parse(text) for text in IN_ORDER]
    turned = parsed[::-1]
    assert sorted(turned) == parsed
    assert [str(version) for version in parsed] == IN_ORDER
    assert not Version.parse("1.0.0") < Version.parse("1.0.0")


@pytest.mark.parametrize(
    "raw",
    ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+build", "1.0.0 ", "1.0.0\n",
     "1.0.٣", "-1.0.0", "1.0.0-" + "a" * 64, "9999999999.0.0"],
)  # fmt: skip
def test_every_other_spelling_is_refused(raw: str) -> None:
    with pytest.raises(MalformedVersion):
        Version.parse(raw)
