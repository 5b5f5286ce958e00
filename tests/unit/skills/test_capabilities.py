from fakes.skill_harness import manifest
from palyra.skills.package.capabilities import Capabilities
from palyra.skills.package.manifest import parse_manifest


def asked(body: str) -> Capabilities:
    return parse_manifest(manifest(capabilities=body)).capabilities


def test_nothing_said_is_nothing_asked() -> None:
    assert asked("") == Capabilities()


def test_the_order_of_a_list_does_not_count() -> None:
    assert asked('channels = ["b", "a"]') == asked('channels = ["a", "b"]')
    assert asked('secrets = ["b", "a"]').secrets == ("skill:acme.notes/a", "skill:acme.notes/b")


def test_its_own_secret_may_be_named_in_full() -> None:
    assert asked('secrets = ["skill:acme.notes/token"]') == asked('secrets = ["token"]')
