from importlib.metadata import version

from palyra.version import VERSION


def test_the_version_is_what_is_installed() -> None:
    assert version("palyra") == VERSION
