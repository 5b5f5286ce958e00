"""Every refusal of profiles has a code of the browser's and a hint."""

import inspect

from palyra.browser.domain import profile
from palyra.errors import PalyraError


def test_codes_and_hints() -> None:
    classes = [each for _, each in inspect.getmembers(profile, inspect.isclass) if each.__module__ == profile.__name__]
    leaves = [each for each in classes if issubclass(each, PalyraError)]
    assert leaves
    assert all(leaf.code.startswith("browser.") and leaf.hint for leaf in leaves)
