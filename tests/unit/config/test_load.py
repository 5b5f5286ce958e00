"""Loading: file, environment and flags together, from a real file."""

from pathlib import Path

import pytest

from palyra.config.load import UnknownSetting
from palyra.daemon.settings import Settings, load_settings


def test_all_sources_meet(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('# mine\n[daemon]\nhost = "::1"\nport = 1\n\n[access.groups]\nteam = ["user:*"]\n')
    loaded = load_settings(path, {"PALYRA_DAEMON__PORT": "2"}, {"tools.timeout_ms": 500})
    assert (loaded.settings.daemon.host, loaded.settings.daemon.port) == ("::1", 2)
    assert loaded.settings.tools.timeout_ms == 500
    assert loaded.settings.access.groups == {"team": ("user:*",)}
    origins = {name: str(origin) for name, origin in loaded.origins.items() if str(origin) != "default"}
    assert origins == {
        "daemon.host": f"{path}:3",
        "daemon.port": "PALYRA_DAEMON__PORT",
        "access.groups": f"{path}:6",
        "tools.timeout_ms": "flag for tools.timeout_ms",
    }


def test_without_a_file_there_are_the_defaults() -> None:
    assert load_settings(None, {}, {}).settings == Settings()


def test_a_misspelt_key_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[tools]\n\npreaproved = []\n")
    with pytest.raises(UnknownSetting) as caught:
        load_settings(path, {}, {})
    assert caught.value.message == (f"{path}:3: tools.preaproved is not a setting; did you mean tools.preapproved?")
    assert caught.value.details["nearest"] == "tools.preapproved"
