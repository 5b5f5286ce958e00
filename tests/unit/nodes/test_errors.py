from palyra.errors import PalyraError
from palyra.nodes.agent import messages


def test_every_leaf_has_its_code_and_says_what_to_do() -> None:
    leaves = [
        each
        for each in vars(messages).values()
        if isinstance(each, type) and issubclass(each, PalyraError) and each.__module__ == messages.__name__
    ]
    assert len(leaves) > 5
    for leaf in leaves:
        assert PalyraError.registry[leaf.code] is leaf and leaf.code.startswith("nodes.") and leaf.hint
