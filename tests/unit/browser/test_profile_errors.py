"""Every refusal of profiles has a code of the browser's and a hint."""

import inspect

from palyra.browser import profile_errors
from palyra.errors import PalyraError


def test_codes_and_hints() -> None:
    leaves = [
        each
        for _, each in inspect.getmembers(profile_errors, inspect.isclass)
        if each.__module__ == profile_errors.__name__
    ]
    assert leaves
    assert all(issubclass(leaf, PalyraError) and leaf.code.startswith("browser.") and leaf.hint for leaf in leaves)
