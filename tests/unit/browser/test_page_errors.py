"""Errors about elements tell what can be done about them."""

from palyra.browser.domain import page_errors
from palyra.errors import PalyraError


def test_each_has_a_code_of_the_browser_and_a_hint() -> None:
    leaves = [
        each
        for each in vars(page_errors).values()
        if isinstance(each, type) and issubclass(each, PalyraError) and each.__module__ == page_errors.__name__
    ]
    assert len(leaves) > 10
    for leaf in leaves:
        assert leaf.code.startswith("browser.")
        assert leaf.hint
