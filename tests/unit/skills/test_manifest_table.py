from typing import Any

import pytest

from palyra.skills.package.toml_reader import MalformedManifest, ManifestTable, dotted, invisible_in


def table(values: dict[str, Any]) -> ManifestTable:
    return ManifestTable(values, {("list",): 3, ("list", 1): 5}, ())


def test_paths_are_shown_as_toml_writes_them() -> None:
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c" and dotted(()) == ""


def test_a_list_longer_than_allowed_and_an_item_too_long_name_their_lines() -> None:
    with pytest.raises(MalformedManifest, match="line 3: list has 3 entries"):
        table({"list": ["a", "b", "c"]}).texts("list", most=2, each=5)
    with pytest.raises(MalformedManifest, match="line 5: list has 6 characters"):
        table({"list": ["a", "bbbbbb"]}).texts("list", most=2, each=5)
    with pytest.raises(MalformedManifest, match="line 3: list is a string"):
        table({"list": "a"}).texts("list", most=2, each=5)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_that_nobody_reads_is_told_by_its_size(sign: int) -> None:
    with pytest.raises(MalformedManifest, match="list is a number of 80000 bits; it must be between 0 and 9"):
        table({"list": sign * (16**20_000 - 1)}).integer("list", least=0, most=9)
    with pytest.raises(MalformedManifest, match=f"list is {sign * (2**64 - 1)};"):
        table({"list": sign * (2**64 - 1)}).integer("list", least=0, most=9)


def test_what_was_not_read_is_refused_and_the_nearest_key_is_named() -> None:
    reading = table({"nmae": "x"})
    reading.text("name", most=5, default="")
    with pytest.raises(MalformedManifest, match="did you mean name"):
        reading.finish()


@pytest.mark.parametrize("value", ["a\u200bb", {"k": ["a\u202e"]}, {"k\u00ad": 1}, ["\U000e0041"], "a\x1b"])
def test_invisible_characters_are_found_at_any_depth(value: Any) -> None:
    assert invisible_in(value)
    assert not invisible_in({"k": ["plain\ttext\n", 7, None, "größer 语言"]})
