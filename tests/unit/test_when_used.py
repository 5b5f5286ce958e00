import subprocess
import sys

import pytest

from palyra.when_used import when_used


def test_it_is_imported_when_something_of_it_is_used_and_not_before() -> None:
    program = (
        "import sys; from palyra.when_used import when_used\n"
        "colour = when_used('colorsys'); print('colorsys' in sys.modules, repr(colour))\n"
        "print(colour.rgb_to_hsv(0, 0, 0), 'colorsys' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["False <colorsys, when it is used>", "(0.0, 0.0, 0) True"]


def test_what_is_put_into_the_module_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import colorsys

    colour = when_used("colorsys")
    assert colour.ONE_THIRD == colorsys.ONE_THIRD
    monkeypatch.setattr(colorsys, "ONE_THIRD", 5)
    assert colour.ONE_THIRD == 5


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(ModuleNotFoundError):
        when_used("palyra.no_such_module").anything  # noqa: B018
    with pytest.raises(AttributeError):
        when_used("colorsys").no_such_name  # noqa: B018
