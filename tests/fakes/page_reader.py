"""A reader who follows a page of the documentation word by word: types its commands into one shell, in its order.

What a page says is compared with what is printed. A comment before a block tells what a reader understands from the
prose: `<!-- saved as FILE -->`, `<!-- stays running -->`, `<!-- not run: REASON -->`, `<!-- run by tests/… -->`.

    PYTHONPATH=tests .venv/bin/python -m fakes.page_reader PAGE

follows a page and writes what was printed into its transcripts.
"""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from fakes.eventually import eventually_sync

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ULID = re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{25}\b")
PAIRING_CODE = re.compile(r"\b\d{3}-\d{4}-\d{4}\b")
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
TOKEN = re.compile(r"\bplr_[\w…-]+")
# What stands for something else in each run: ids, digests, codes and tokens that a page's later commands may name.
NAMED = (ULID, PAIRING_CODE, DIGEST, TOKEN)
# What else differs from one run to the next.
VOLATILE = [
    (TOKEN, "TOKEN"),
    (ULID, "ID"),
    (DIGEST, "DIGEST"),
    (PAIRING_CODE, "CODE"),
    (re.compile(r"\bbundle [0-9a-f]{12}\b"), "bundle DIGEST"),
    (re.compile(r"ed25519:[0-9a-f]{32}"), "KEY"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"^\d+(?= +TIME )", re.MULTILINE), "SEQ"),
    (re.compile(r"\b\d+(\.\d+)? m?s\b"), "N ms"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+"), "HERE"),
    (re.compile(r"^checkpoints: .*\ncompared with .*$", re.MULTILINE), "CHECKPOINTS"),
    (re.compile(r"\b\d+ events, 1 to \d+"), "EVENTS"),
    (re.compile(r"^total \d+$", re.MULTILINE), "total"),
    (re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d"), "DATE"),
    (re.compile(r" {2,}"), "  "),
]
PAGE_PORTS = ("8765",)
# Pages that are followed whole, by tests/e2e/test_pages_followed.py.
FOLLOWED = (
    "README.md",
    "docs/tutorial/twenty-minutes.md",
    "docs/how-to/approve-calls.md",
    "docs/how-to/back-up-and-restore.md",
    "docs/how-to/connect-an-agent.md",
    "docs/how-to/give-an-agent-an-api.md",
    "docs/how-to/investigate-an-incident.md",
    "docs/how-to/keep-secrets.md",
    "docs/how-to/protect-a-coding-agent.md",
    "docs/how-to/put-mcp-servers-behind-palyra.md",
    "docs/how-to/reach-the-network.md",
    "docs/how-to/run-for-a-team.md",
    "docs/how-to/run-programs.md",
    "docs/how-to/verify-the-record.md",
    "docs/how-to/write-policies.md",
)
READY_SECONDS = 90
COMMAND_SECONDS = 300


@dataclass(frozen=True)
class Block:
    page: Path
    mark: str
    language: str
    text: str
    number: int

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Each command with what it is said to print; lines of a transcript that begin with `> ` go on with one."""
        if self.language != "console":
            lines = self.text.replace("\\\n", " ").splitlines()
            return [(line, "") for line in lines if line.strip()]
        found = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            first, _, rest = part.partition("\n")
            lines = rest.splitlines(keepends=True)
            more = 0
            while more < len(lines) and lines[more].startswith("> "):
                more += 1
            found.append(("\n".join([first, *(line[2:].rstrip("\n") for line in lines[:more])]), "".join(lines[more:])))
        return found


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = enumerate(BLOCK.findall(text))
    return [Block(page, mark or "", language, inside, number) for number, (mark, language, inside) in found]


def steady(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@dataclass
class Reader:
    """With a home of its own, and one shell that remembers where it is and what was exported."""

    home: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    status: int = 0

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.memory = self.home.parent / f"{self.home.name}-shell"
        self.memory.mkdir()
        (self.memory / "folder").write_text(f"{self.home}\n")
        (self.memory / "exported").write_text("")
        # Where the pages have somebody's programs in Python, this environment has them.
        roots = sorted({prefix for prefix in (sys.prefix, sys.base_prefix) if not prefix.startswith("/usr")})
        self.names |= {'["/opt/servers"]': json.dumps(roots), "/opt/servers/bin/python": sys.executable}
        # Ports of the pages' own servers: free ones here.
        for port in PAGE_PORTS:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.names[port] = str(free.getsockname()[1])
        # The checkout, where the pages say it is.
        (self.home / "palyra").symlink_to(ROOT)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
        programs = Path(sys.executable).parent
        return {
            **kept,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "NO_COLOR": "1",
            # A page names the port that a daemon has by itself. Here others may have it.
            "PALYRA_DAEMON__PORT": "0",
            **self.extra,
        }

    def as_on_page(self, printed: str) -> str:
        """As a page shows it: with the home and the port that its reader has."""
        printed = printed.replace(str(self.home), "/home/you").replace(str(ROOT), "/home/you/palyra")
        for port in PAGE_PORTS:
            printed = printed.replace(self.names[port], port)
        return re.sub(r"\b127\.0\.0\.1:(?!8765)\d{4,5}\b", "127.0.0.1:7142", printed)

    def path(self, written: str) -> Path:
        return Path(written.replace("~", str(self.home), 1)) if written.startswith("~") else self.home / written

    def filled(self, text: str) -> str:
        """With this run's names in the place of the page's."""
        for old, new in self.names.items():
            text = text.replace(old, new)
        return text

    def _words(self, command: str) -> list[str]:
        command = self.filled(command)
        where, exported = self.memory / "folder", self.memory / "exported"
        before, after = f'. {exported}; cd "$(cat {where})"', f"pwd > {where}; export -p > {exported}"
        return ["bash", "-o", "pipefail", "-c", f"{before}\n{command}\nstatus=$?; {after}; exit $status"]

    def typed(self, command: str, said: str = "") -> str:
        """What one command prints. Where the page shows an answer to a question, it is typed at a terminal."""
        if command == "echo $?":
            return f"{self.status}\n"
        if answer := re.search(r"\[y/N\]: (\w+)$", said, re.MULTILINE):
            return self._answered(command, answer[1])
        done = subprocess.run(
            self._words(command),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        self.status = done.returncode
        return done.stdout

    def _answered(self, command: str, answer: str) -> str:
        ours, theirs = pty.openpty()
        # So wide that no line is folded: homes on the page and here are not of one length.
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
        running = subprocess.Popen(
            self._words(command), env=self.environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        printed = b""
        with suppress(OSError):  # a terminal whose last user is gone
            while chunk := os.read(ours, 65536):
                printed += chunk
                if printed.endswith(b"[y/N]: "):
                    os.write(ours, f"{answer}\n".encode())
        os.close(ours)
        self.status = running.wait(COMMAND_SECONDS)
        return printed.decode().replace("\r\n", "\n")

    def begun(self, command: str) -> str:
        """A command that stays running in another terminal; what it had printed when it was ready."""
        log = self.memory / f"running-{len(self.started)}"
        with log.open("wb") as out:
            words = self._words(f"exec {command}")
            process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.started.append(process)
        eventually_sync(lambda: "Ctrl-C stops" in log.read_text() or process.poll() is not None, seconds=READY_SECONDS)
        assert process.poll() is None, log.read_text()
        return log.read_text()

    def stop(self) -> None:
        for process in reversed(self.started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        for process in reversed(self.started):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
        self.started.clear()

    def follow(self, page: Path) -> Iterator[tuple[Block, str, str, str]]:
        """Each command of a page with what it is said to print and what it printed."""
        for block in blocks_of(page):
            kind, _, rest = block.mark.partition(" as " if block.mark.startswith("saved") else ":")
            if kind == "saved":
                target = self.path(rest)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.filled(block.text))
            if block.language not in {"sh", "console"} or kind == "not run" or kind.startswith("run by"):
                continue
            for command, said in block.commands:
                printed = self.begun(command) if kind == "stays running" else self.typed(command, said)
                for pattern in NAMED:
                    self.names |= dict(zip(pattern.findall(said), pattern.findall(printed), strict=False))
                yield block, command, said, printed


def check(page: Path, reader: Reader) -> int:
    """Follows a page; everything must go as it says. How many commands it has."""
    seen = 0
    try:
        for block, command, said, printed in reader.follow(page):
            seen += 1
            if block.language == "console":
                got, wanted = steady(reader.as_on_page(printed)), steady(said)
                assert got == wanted, f"{command}\nthe page has:\n{wanted}\nprinted:\n{got}"
            else:
                assert reader.status == 0, (command, printed)
    finally:
        reader.stop()
    return seen


def rewrite(page: Path, extra: Mapping[str, str]) -> None:
    """Puts what is printed into the page's transcripts."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        # The name that the pages give to a reader's home.
        home = Path(folder) / "home" / "you"
        reader = Reader(home, extra)
        reported: dict[int, str] = {}
        try:
            for block, command, _, printed in reader.follow(page):
                shown = TOKEN.sub(lambda token: f"{token[0][:30]}_…", reader.as_on_page(printed))
                lines = reader.as_on_page(reader.filled(command)).splitlines()
                typed = "\n".join([f"$ {lines[0]}", *(f"> {line}" for line in lines[1:])])
                reported[block.number] = reported.get(block.number, "") + f"{typed}\n{shown}"
                print(f"$ {command}\n{printed}", end="", flush=True)
        finally:
            reader.stop()
    numbers = count()

    def replaced(match: re.Match[str]) -> str:
        new = reported.get(next(numbers))
        if match[2] != "console" or new is None:
            return match[0]
        return match[0].replace(match[3], new if new.endswith("\n") else f"{new}\n")

    text = BLOCK.sub(replaced, text)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]), dict(shlex.split(word)[0].split("=", 1) for word in sys.argv[2:]))
