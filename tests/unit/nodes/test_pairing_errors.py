import inspect

import pytest

from palyra.errors import PalyraError
from palyra.nodes.pairing import rules

ERRORS = [one for _, one in inspect.getmembers(rules, inspect.isclass) if one.__module__ == rules.__name__]


@pytest.mark.parametrize("error", ERRORS)
def test_every_refusal_has_a_code_of_its_own_and_a_hint(error):
    assert issubclass(error, PalyraError)
    assert error.code.startswith("pairing.") and error.hint
    assert 400 <= error.http_status < 600
