import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from palyra.egress.domain.refusal import NameUnresolved
from palyra.egress.limits import MAX_ANSWERS, MAX_WAITING_LOOKUPS
from palyra.egress.proxy.resolver import SystemResolver, parse_hosts_file, system_lookup


class Answers:
    """A resolver of the system that remembers what it was asked, and waits where a test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        self.go.wait(30)
        if "missing" in name:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [f"9.9.{index // 250}.{index % 250}" for index in range(100 if "many" in name else 1)]


Made = Callable[..., SystemResolver]


@pytest.fixture
def answers() -> Iterator[Answers]:
    found = Answers()
    yield found
    found.go.set()


@pytest.fixture
def make(tmp_path: Path, answers: Answers) -> Iterator[Made]:
    made: list[SystemResolver] = []

    def one(static: dict[str, tuple[str, ...]] | None = None, hosts: str = "", timeout: float = 30) -> SystemResolver:
        file = tmp_path / "hosts"
        file.write_text(hosts)
        made.append(SystemResolver(static or {}, lookup=answers, hosts_file=file, timeout_seconds=timeout))
        return made[-1]

    yield one
    answers.go.set()
    for each in made:
        each.close()


async def test_static_names_come_first_in_any_spelling(make: Made, answers: Answers) -> None:
    resolver = make({"API.Example.": ("10.0.0.1", "10.0.0.2")}, hosts="1.1.1.1 api.example")
    assert await resolver.resolve("api.example") == ("10.0.0.1", "10.0.0.2")
    assert answers.asked == []


async def test_the_file_of_hosts_comes_second_and_is_read_again_when_it_changes(
    make: Made, answers: Answers, tmp_path: Path
) -> None:
    resolver = make(hosts="10.0.0.9 db.example db # here\n")
    assert await resolver.resolve("db.example") == ("10.0.0.9",)
    (tmp_path / "hosts").write_text("10.0.0.10 db.example other.example\n")
    assert await resolver.resolve("db.example") == ("10.0.0.10",)
    assert answers.asked == []


async def test_dotted_names_are_asked_for_as_absolute_ones(make: Made, answers: Answers) -> None:
    resolver = make()
    assert await resolver.resolve("api.example") == ("9.9.0.0",)
    await resolver.resolve("intranet")
    assert answers.asked == ["api.example.", "intranet"]


async def test_an_address_is_its_own_answer(make: Made, answers: Answers) -> None:
    assert await make().resolve("2a00::1") == ("2a00::1",) and answers.asked == []


async def test_unknown_names_and_floods_of_answers_are_refusals(make: Made) -> None:
    resolver = make()
    for name in ("missing.example", "many.example"):
        with pytest.raises(NameUnresolved) as refusal:
            await resolver.resolve(name)
        assert refusal.value.refusal().host == name
    assert MAX_ANSWERS < 100


async def test_a_slow_lookup_is_given_up(make: Made, answers: Answers) -> None:
    answers.go.clear()
    with pytest.raises(NameUnresolved, match="took longer"):
        await make(timeout=0.05).resolve("slow.example")


async def test_callers_at_once_share_a_lookup_and_one_that_leaves_harms_no_other(make: Made, answers: Answers) -> None:
    answers.go.clear()
    resolver = make()
    first, second = (asyncio.ensure_future(resolver.resolve("a.example")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    answers.go.set()
    assert await second == ("9.9.0.0",)
    assert first.cancelled() and answers.asked == ["a.example."]


async def test_lookups_that_never_end_do_not_pile_up(make: Made, answers: Answers) -> None:
    answers.go.clear()
    resolver = make()
    waiting = [asyncio.ensure_future(resolver.resolve(f"n{each}.example")) for each in range(MAX_WAITING_LOOKUPS)]
    await asyncio.sleep(0)
    with pytest.raises(NameUnresolved, match="too many"):
        await resolver.resolve("one-more.example")
    answers.go.set()
    assert len(await asyncio.gather(*waiting)) == MAX_WAITING_LOOKUPS


def test_odd_lines_of_the_file_are_passed_over() -> None:
    text = "# c\n\n127.0.0.1\tlocalhost LOCALHOST\n::1 localhost\nfe80::1%lo0 x\nnonsense y\n1.2.3.4 ok.example 127.1\n"
    assert parse_hosts_file(text) == {
        "localhost": ("127.0.0.1", "::1"),
        "x": ("fe80::1%lo0",),
        "ok.example": ("1.2.3.4",),
    }


def test_the_systems_resolver_knows_this_machine() -> None:
    assert "127.0.0.1" in system_lookup("localhost")
