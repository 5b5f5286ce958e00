"""An older copy of the whole folder of profiles, put back: in itself everything fits, and only palyrad knows better.

The daemons, the browser and the disk are real: `palyra up` is stopped, the folder is changed, `palyra up` is started.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.daemon import Daemon, Place
from fakes.web_application import PASSWORD, SHOP, USER, WebApplication, web_application
from palyra.client.client import Client
from palyra.client.protocol import ApiError, NeedsApprovalError

pytestmark = pytest.mark.promise("P-browser-profile")

ROLLED_BACK = "browser.profiles_folder_rolled_back"
ACCEPTED = "browser.profiles_accepted"
CLERK = "agent:clerk"


def settings(site: WebApplication) -> str:
    hosts = msgspec.json.encode([f"{SHOP}:{site.port}"]).decode()
    return f"""
[egress]
allowed_hosts = {hosts}
static_hosts = {{ "{SHOP}" = ["127.0.0.1"] }}
[browser]
ready = 1
private_targets = {hosts}
"""


def element(role: str, name: str) -> dict[str, str]:
    return {"role": role, "name": name}


def code_of(asked: Callable[[], object]) -> str:
    with pytest.raises(ApiError) as caught:
        asked()
    error = caught.value.as_dict()
    assert error["code"] != ROLLED_BACK or "palyra browser profiles accept" in error["hint"]
    return str(error["code"])


class Shop:
    """An agent with a profile in a shop, and the disk that its profile is on."""

    def __init__(self, place: Place, site: WebApplication) -> None:
        self.place = place
        self.site = site
        self.folder = place.state / "browser" / "profiles"
        self._copies = 0

    @contextmanager
    def running(self) -> Iterator["Sitting"]:
        with self.place.daemon(browser=True) as daemon, daemon.client() as operator:
            token = operator.create_token(CLERK, scopes=("call",)).token.reveal()
            with daemon.client(token) as agent:
                yield Sitting(daemon, operator, agent, self.site)

    def copied(self) -> Path:
        self._copies += 1
        return Path(shutil.copytree(self.folder, self.place.root / f"copy-{self._copies}"))

    def put_back(self, copy: Path) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)

    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.name.endswith(".enc")}

    def on_record(self, kind: str) -> list[dict[str, Any]]:
        tail = self.place.palyra("journal", "tail", "-n", "200", "--kind", kind, "--json")
        return [event["payload"] for event in tail.data["events"]]


class Sitting:
    """From one start of the daemons to their end."""

    def __init__(self, daemon: Daemon, operator: Client, agent: Client, site: WebApplication) -> None:
        self.daemon = daemon
        self.operator = operator
        self._agent = agent
        self._site = site
        self._run = agent.start_run().run_id

    def make_profile(self) -> None:
        self.operator.create_browser_profile(CLERK, "work")

    def open(self, path: str = "/welcome") -> Any:
        hosts = [f"{SHOP}:{self._site.port}"]
        asked = {"url": self._site.url(path), "hosts": hosts, "profile": "work", "snapshot": True}
        return self._call("browser.open", asked)

    def act(self, session: str, *actions: dict[str, Any]) -> Any:
        return self._call("browser.act", {"session": session, "actions": list(actions), "snapshot": True})

    def used(self, path: str = "/welcome") -> str:
        """One session with the profile, closed and saved; returns what its first page said."""
        opened = self.open(path)
        assert self.operator.change_browser_session(opened["session"], "close").saved
        return str(opened["snapshot"]["text"])

    def log_in(self) -> None:
        opened = self.open("/login")
        went = self.act(
            opened["session"],
            {"action": "type", "target": element("textbox", "Name"), "text": USER},
            {"action": "type", "target": element("textbox", "Password"), "text": PASSWORD, "submit": True},
        )
        assert f"Welcome, {USER}" in went["snapshot"]["text"]
        assert self.operator.change_browser_session(opened["session"], "close").saved

    def refused(self) -> str:
        return code_of(self.open)

    def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        try:
            return self._agent.call(tool, arguments, run_id=self._run).result
        except NeedsApprovalError as needed:
            self.operator.approve(needed.approval_id)
            return self._agent.call(tool, arguments, run_id=self._run).result


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with web_application() as site:
        yield Shop(Place(tmp_path, settings(site)), site)


@pytest.mark.timeout(300)
def test_an_older_copy_of_the_whole_folder_is_refused_until_an_operator_accepts_it(shop: Shop) -> None:
    with shop.running() as sitting:
        sitting.make_profile()
        sitting.log_in()
    logged_in = shop.copied()
    with shop.running() as sitting:
        assert f"Welcome, {USER}" in sitting.used()
        sitting.used("/logout")
    logged_out = shop.copied()
    assert shop.on_record(ROLLED_BACK) == []

    shop.put_back(logged_in)
    before = shop.content()
    with shop.running() as sitting:
        assert sitting.refused() == ROLLED_BACK
        # Nothing else that would use or change them, and what is there can be seen.
        assert code_of(lambda: sitting.operator.create_browser_profile(CLERK, "another")) == ROLLED_BACK
        (listed,) = sitting.operator.browser_profiles()
        assert (listed.name, listed.damaged) == ("work", ROLLED_BACK)
        for change in ("reset", "delete"):
            assert code_of(partial(sitting.operator.change_browser_profile, listed.profile_id, change)) == ROLLED_BACK
        assert sitting.operator.status().document["browser"]["profiles_rolled_back"] is True
    # Also in the next life, and the evidence is as it was.
    with shop.running() as sitting:
        assert sitting.refused() == ROLLED_BACK
        assert shop.content() == before
        seen = shop.on_record(ROLLED_BACK)
        assert len(seen) == 2 and all(event["found"] < event["heard"] for event in seen)
        accepted = shop.place.palyra("browser", "profiles", "accept", "--json")
        assert accepted.status == 0, accepted.stdout
        assert accepted.data["generation"] > accepted.data["heard"] > accepted.data["found"]
        sitting.used()
        again = shop.place.palyra("browser", "profiles", "accept", "--json")
        assert again.error["code"] == "browser.profiles_not_rolled_back"
    assert shop.on_record(ACCEPTED) == [accepted.data]

    # The line that was given up does not come back either, though its numbers were higher once.
    accepted_copy = shop.copied()
    shop.put_back(logged_out)
    with shop.running() as sitting:
        assert sitting.refused() == ROLLED_BACK
    shop.put_back(accepted_copy)
    with shop.running() as sitting:
        sitting.used()


@pytest.mark.timeout(300)
def test_no_profiles_at_all_where_there_were_some_is_an_older_copy_too(shop: Shop) -> None:
    with shop.running() as sitting:
        sitting.make_profile()
    shutil.rmtree(shop.folder)
    with shop.running() as sitting:
        assert sitting.refused() == ROLLED_BACK
        assert code_of(sitting.make_profile) == ROLLED_BACK
        assert shop.place.palyra("browser", "profiles", "accept").status == 0
        sitting.make_profile()
        sitting.used()
    assert len(shop.on_record(ROLLED_BACK)) == len(shop.on_record(ACCEPTED)) == 1


@pytest.mark.timeout(300)
def test_what_was_saved_after_palyrad_was_killed_is_newer_and_is_used(shop: Shop) -> None:
    with shop.running() as sitting:
        sitting.make_profile()
        sitting.open("/login")
        # The browser daemon ends in order, and saves; nobody is there to hear of it.
        sitting.daemon.kill()
    with shop.running() as sitting:
        sitting.used()
    assert shop.on_record(ROLLED_BACK) == []


@pytest.mark.timeout(300)
def test_a_backup_brings_back_the_profiles_and_what_is_remembered_of_them(shop: Shop) -> None:
    file = str(shop.place.root / "kept.palyra")
    with shop.running() as sitting:
        sitting.make_profile()
        sitting.log_in()
        made = shop.place.palyra("state", "backup", file)
        assert made.status == 0, made.stderr
        sitting.used("/logout")
    newer = shop.copied()
    restored = shop.place.palyra("state", "restore", file, "--replace")
    assert restored.status == 0, restored.stderr
    with shop.running() as sitting:
        sitting.used()
    assert shop.on_record(ROLLED_BACK) == []
    # A database that is older than its profiles is none of their fault, unless both went on since then.
    assert shop.place.palyra("state", "restore", file, "--replace").status == 0
    shop.put_back(newer)
    with shop.running() as sitting:
        sitting.used()
    assert shop.on_record(ROLLED_BACK) == []
