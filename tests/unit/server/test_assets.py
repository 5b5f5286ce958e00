"""Assets come out of the package, and nothing else does."""

import re

import pytest

from palyra.server.console.rendering import Assets


def test_scripts_and_styles_bring_in_nothing_from_elsewhere() -> None:
    assets = Assets.load()
    assert {"app.js", "palyra.css", "theme.js", "mark.svg"} <= assets.files.keys()
    for name, content in assets.files.items():
        text = content.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), name
        assert "eval(" not in text and "innerHTML =" not in text and "new Function" not in text, name
        for imported in re.findall(r'from "\./([a-z]+\.js)"', text):
            assert imported in assets.files


def test_the_address_changes_with_the_content() -> None:
    assets = Assets.load()
    assert assets.url("app.js") == f"/static/{assets.digest}/app.js" and len(assets.digest) == 16
    with pytest.raises(LookupError):
        assets.url("other.js")
