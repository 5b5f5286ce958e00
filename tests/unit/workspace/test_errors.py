import errno

import pytest

from palyra.errors import PalyraError
from palyra.workspace import errors
from palyra.workspace.errors import translate_oserror


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EXDEV, "workspace.escape"),
        (errno.ELOOP, "workspace.symlink"),
        (errno.ENOENT, "workspace.not_found"),
        (errno.ENOSPC, "workspace.disk_full"),
        (errno.EDQUOT, "workspace.disk_full"),
        (errno.EROFS, "workspace.read_only"),
        (errno.EACCES, "workspace.no_permission"),
        (errno.ENOSYS, "workspace.openat2_missing"),
        (errno.EIO, "workspace.io"),
    ],
)
def test_an_errno_has_one_refusal(number: int, code: str) -> None:
    refusal = translate_oserror(OSError(number, "the system's words"), "a/b")
    assert refusal.code == code
    assert refusal.details["path"] == "a/b"
    assert refusal.message.startswith("a/b ")


def test_every_leaf_has_a_code_and_a_hint() -> None:
    leaves = [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]
    assert len(leaves) > 15
    for leaf in leaves:
        assert issubclass(leaf, PalyraError)
        assert leaf.code.startswith("workspace.")
        assert leaf.hint
