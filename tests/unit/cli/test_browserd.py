"""The words of ``palyra-browserd``."""

from click.testing import CliRunner

from palyra.cli.browserd import browserd


def test_help_says_who_starts_it_and_where_it_listens() -> None:
    shown = CliRunner().invoke(browserd, ["--help"]).output
    assert "palyra up" in shown and "socket" in shown and "--until-input-ends" in shown
