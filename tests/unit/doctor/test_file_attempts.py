from palyra.doctor.attacks.attempt import AttackClass
from palyra.doctor.attacks.file_attempts import FILE_ATTEMPTS
from palyra.sandbox.domain.profile import Layer


def test_every_protected_name_is_attacked_in_more_than_one_way() -> None:
    against = [each for each in FILE_ATTEMPTS if each.c and Layer.PROTECTED_NAMES in each.c]
    paths = [each.arguments.get("path", "") for each in against]
    for name in (".git/config", ".git/hooks", ".env", ".git"):
        assert sum(1 for path in paths if path.startswith(name)) >= 2


def test_tier_b_answers_for_reading_and_writing_outside() -> None:
    promised = {each.id for each in FILE_ATTEMPTS if each.b and Layer.LANDLOCK in each.b}
    assert {"files.read_absolute", "files.read_symlink", "files.write_absolute", "files.rename_out"} <= promised
    assert all(each.kind is AttackClass.FILES for each in FILE_ATTEMPTS)
