"""Attacks on what stands around a browser, with real Chromium, a real namespace and the real egress proxy."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import browser_start_main
from fakes.browser_engine import Guarded, attach, evaluate, launching, load
from fakes.egress_harness import server
from fakes.eventually import eventually_sync
from fakes.ordinary_user import as_ordinary_user
from fakes.processes import marked, new_mark
from palyra.browser.domain import limits
from palyra.browser.domain.cdp_messages import CdpEvent, CommandRefused
from palyra.browser.engine.chromium import ChromiumLauncher, ChromiumProcess, ChromiumSettings, NetworkServiceDied
from palyra.browser.engine.isolation_layers import NETWORK_SERVICE
from palyra.browser.engine.launch_plan import DOWNLOADS
from palyra.browser.engine.prewarm import ProcessPool
from palyra.browser.engine.process_inspection import descendants, inspect_process, look_at_network, start_time
from palyra.browser.engine.process_tree import ProcessNotes

SHOP = "shop.test"
ELSEWHERE = "elsewhere.test"
# From the documentation ranges: in a namespace without a route nothing can be sent there, and that is the point.
NOBODY = "192.0.2.1"


class Site:
    """An HTTP server on the host's own loopback, and everything that reached it."""

    def __init__(self) -> None:
        self.port = 0
        self.hosts: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").split("\r\n")
            path = lines[0].split(" ")[1]
            self.hosts += [line[6:] for line in lines if line.lower().startswith("host: ")]
            kind, extra, body = "text/html", "", b"<title>Shop</title><h1>open</h1>"
            if path == "/large":
                kind, extra, body = "application/octet-stream", "Content-Disposition: attachment\r\n", b"x" * (1 << 20)
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body
            )
            await writer.drain()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    async with server(site.answer) as port:
        site.port = port
        yield site


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ChromiumLauncher]:
    async with launching(tmp_path / "notes") as launcher:
        yield launcher


@pytest.fixture
async def process(launcher: ChromiumLauncher) -> AsyncIterator[ChromiumProcess]:
    process = await launcher.start()
    yield process
    await process.close(graceful=False)


@pytest.fixture
async def guarded(process: ChromiumProcess, site: Site) -> AsyncIterator[Guarded]:
    guarded = Guarded({SHOP: ("127.0.0.1",), ELSEWHERE: ("127.0.0.1",)}, f"{SHOP}:{site.port}")
    yield guarded
    await guarded.close()


def counted(process: ChromiumProcess, protocol: str) -> dict[str, int]:
    """What the kernel counted in the browser's network."""
    lines = Path(f"/proc/{process.pid}/net/snmp").read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith(f"{protocol}:"))
    return dict(zip(names, map(int, values), strict=True))


def packets(process: ChromiumProcess) -> dict[str, int]:
    lines = Path(f"/proc/{process.pid}/net/dev").read_text().splitlines()[2:]
    return {line.split(":")[0].strip(): int(line.split(":")[1].split()[9]) for line in lines}


async def test_a_page_comes_through_the_guard_and_only_so(
    process: ChromiumProcess, guarded: Guarded, site: Site
) -> None:
    # A browser with a page that nobody has taken yet: it has not sent a single packet.
    assert packets(process) == {"lo": 0}
    guarded.serve(process)
    session = await attach(process)
    assert "errorText" not in await load(process, session, f"http://{SHOP}:{site.port}/")
    assert await evaluate(process, session, "document.title") == "Shop"
    assert guarded.reached() == {SHOP}
    assert set(site.hosts) == {f"{SHOP}:{site.port}"}
    # The guard's door was the only connection: everything that was opened came to it.
    assert list(packets(process)) == ["lo"]
    opened = len(guarded.recorder.connected()) + len(guarded.recorder.refusals())
    assert counted(process, "Tcp")["ActiveOpens"] == opened
    assert counted(process, "Udp")["OutDatagrams"] == 0
    assert guarded.resolver.asked and set(guarded.resolver.asked) == {SHOP}


async def test_nothing_else_can_be_reached_by_a_page(process: ChromiumProcess, guarded: Guarded, site: Site) -> None:
    guarded.serve(process)
    session = await attach(process)
    await load(process, session, f"http://{SHOP}:{site.port}/")
    site.hosts.clear()
    urls = [
        f"http://127.0.0.1:{site.port}/",
        f"http://localhost:{site.port}/",
        f"http://[::1]:{site.port}/",
        f"http://{ELSEWHERE}:{site.port}/",
        f"http://{NOBODY}/",
        "http://169.254.169.254/latest/meta-data/",
        f"ws://127.0.0.1:{site.port}/",
    ]
    tried = """
        (url) => url.startsWith('ws')
            ? new Promise((done) => { const s = new WebSocket(url); s.onopen = () => done('open'); s.onerror = () => done('no'); })
            : fetch(url, {mode: 'no-cors'}).then(() => 'open', () => 'no')
    """  # noqa: E501
    answers = await evaluate(process, session, f"Promise.all({json.dumps(urls)}.map({tried}))")
    assert answers == ["no"] * len(urls)
    assert site.hosts == []
    assert guarded.reached() == {SHOP}
    refused = {each.refusal.host for each in guarded.recorder.refusals()}
    assert {"127.0.0.1", ELSEWHERE, NOBODY, "169.254.169.254"} <= refused
    assert counted(process, "Udp")["OutDatagrams"] == 0


async def test_peer_connections_send_no_datagram_and_ask_no_name(
    process: ChromiumProcess, guarded: Guarded, site: Site
) -> None:
    guarded.serve(process)
    session = await attach(process)
    await load(process, session, f"http://{SHOP}:{site.port}/")
    candidates = await evaluate(
        process,
        session,
        f"""new Promise(async (done) => {{
            const urls = ['stun:{ELSEWHERE}:3478', 'stun:{NOBODY}:3478'];
            const peer = new RTCPeerConnection({{iceServers: [{{urls}}]}});
            const found = [];
            peer.onicecandidate = (event) => event.candidate ? found.push(event.candidate.candidate) : done(found);
            peer.createDataChannel('x');
            await peer.setLocalDescription(await peer.createOffer());
            setTimeout(() => done(found), 500);
        }})""",
    )
    assert [each for each in candidates if " udp " in each.lower()] == []
    assert counted(process, "Udp")["OutDatagrams"] == 0
    assert ELSEWHERE not in guarded.resolver.asked


async def test_a_killed_network_service_ends_the_browser_and_nothing_goes_direct(
    process: ChromiumProcess, guarded: Guarded, site: Site
) -> None:
    guarded.serve(process)
    session = await attach(process)
    await load(process, session, f"http://{SHOP}:{site.port}/")
    # A page that never stops asking, for the site by name and for the host's loopback directly.
    loop = f"setInterval(() => {{ fetch('/?' + Math.random()); fetch('http://127.0.0.1:{site.port}/') }}, 1)"
    await evaluate(process, session, loop)
    processes = {pid: start_time(pid) for pid in descendants(process.pid)}
    seen = (inspect_process(pid) for pid in processes)
    (service,) = (each.pid for each in seen if each is not None and each.kind == NETWORK_SERVICE)
    os.kill(service, signal.SIGKILL)
    async with asyncio.timeout(60):
        await process.ended.wait()
    assert isinstance(process.failure, NetworkServiceDied)
    assert process.failure.code == "browser.network_service_died"
    with pytest.raises(NetworkServiceDied):
        await process.cdp.send("Browser.getVersion")
    await process.close(graceful=True)
    assert [pid for pid, started in processes.items() if start_time(pid) == started] == []
    assert set(site.hosts) == {f"{SHOP}:{site.port}"}


async def test_even_a_browser_without_a_proxy_finds_no_way_out(
    process: ChromiumProcess, guarded: Guarded, site: Site
) -> None:
    """A context whose proxy was taken away, as a taken-over network process would: only the namespace is left."""
    made = await process.cdp.send("Target.createBrowserContext", {"proxyServer": "direct://", "proxyBypassList": "*"})
    target = await process.cdp.send(
        "Target.createTarget", {"url": "about:blank", "browserContextId": made["browserContextId"]}
    )
    process.first_target = target["targetId"]
    guarded.serve(process)
    session = await attach(process)
    for host in ("127.0.0.1", NOBODY, "169.254.169.254"):
        answer = await load(process, session, f"http://{host}:{site.port}/")
        assert answer["errorText"].startswith("net::ERR_")
    assert site.hosts == []
    network = look_at_network(process.pid)
    assert (network.is_own, network.interfaces, network.routes) == (True, ("lo",), ())


async def test_a_download_that_fills_its_folder_fails_and_the_browser_goes_on(tmp_path: Path, site: Site) -> None:
    sizes = limits.FolderSizes(downloads=256 * limits.KIB)
    async with launching(tmp_path / "notes", ChromiumSettings(sizes=sizes)) as launcher:
        process = await launcher.start()
        guarded = Guarded({SHOP: ("127.0.0.1",)}, f"{SHOP}:{site.port}")
        guarded.serve(process)
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_event(event: CdpEvent) -> None:
            if (
                event.method == "Browser.downloadProgress"
                and event.params["state"] != "inProgress"
                and not ended.done()
            ):
                ended.set_result(event.params["state"])

        process.cdp.subscribe(None, on_event)
        params: dict[str, Any] = {"behavior": "allowAndName", "downloadPath": DOWNLOADS, "eventsEnabled": True}
        await process.cdp.send("Browser.setDownloadBehavior", params)
        session = await attach(process)
        await process.cdp.send("Page.navigate", {"url": f"http://{SHOP}:{site.port}/large"}, session)
        async with asyncio.timeout(60):
            assert await ended == "canceled"
        assert sum(path.stat().st_size for path in process.downloads.iterdir()) <= sizes.downloads
        assert process.alive
        assert await evaluate(process, session, "1 + 1") == 2
        await guarded.close()
        await process.close(graceful=False)


async def test_a_browser_sees_nothing_of_the_host(process: ChromiumProcess, tmp_path: Path) -> None:
    """Pages may be sent to files: what matters is which there are."""
    secret = tmp_path / "secret.txt"
    secret.write_text("of the host")
    session = await attach(process)
    for path in (secret, Path("/etc/passwd"), Path("/etc/shadow"), Path("/root"), Path("/home"), Path("/var")):
        answer = await load(process, session, f"file://{path}")
        assert answer["errorText"] == "net::ERR_FILE_NOT_FOUND", path
    # Nothing of the daemon's: neither its processes nor its variables.
    await load(process, session, "file:///proc/1/environ")
    # The event that was heard may be that of the page before.
    shown = (
        "new Promise(done => { const look = () => document.readyState === 'complete'"
        " ? done(document.body.innerText) : setTimeout(look, 5); look(); })"
    )
    assert os.environ["PATH"] not in (await evaluate(process, session, shown) or "")


async def test_cdp_is_reachable_by_nobody_else(process: ChromiumProcess) -> None:
    listening = look_at_network(process.pid).listening
    assert listening == (("127.0.0.1", limits.GUARD_PORT),)
    with pytest.raises(CommandRefused):
        await process.cdp.send("Browser.doesNotExist")


async def test_a_taken_browser_is_never_given_to_a_second_session(launcher: ChromiumLauncher) -> None:
    pool = ProcessPool(launcher.start, ready=2)
    pool.fill()
    first, second = await pool.take(), await pool.take()
    assert first.pid != second.pid
    session = await attach(first)
    await evaluate(first, session, "globalThis.mine = 'first'")
    known = {first.pid, second.pid}
    await first.close(graceful=False)
    for _ in range(2):
        next_one = await pool.take()
        assert next_one.pid not in known and next_one.receipt.held
        known.add(next_one.pid)
        assert await evaluate(next_one, await attach(next_one), "globalThis.mine") is None
        # A spare was never served: it has sent nothing.
        assert packets(next_one) == {"lo": 0}
        await next_one.close(graceful=False)
    await second.close(graceful=False)
    await pool.close()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """One that another user may write; the test's own folder lies in a private one."""
    with tempfile.TemporaryDirectory(prefix="palyra-browser-owner-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_killed_daemon_leaves_no_browser(tmp_path: Path, public_folder: Path, user: str) -> None:
    prefix: tuple[str, ...] = ()
    if user == "ordinary":
        prefix = as_ordinary_user(tmp_path)
    elif os.geteuid() != 0:
        pytest.skip("only root can be root")
    owner = subprocess.Popen(
        [*prefix, sys.executable, "-m", "fakes.browser_owner_main", str(public_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with owner:
        assert owner.stdout is not None
        said = json.loads(owner.stdout.readline())
        assert said["held"], said
        processes = {int(pid): started for pid, started in said["processes"].items()}
        assert all(start_time(pid) == started for pid, started in list(processes.items())[:2])
        owner.kill()
        owner.wait(60)
        eventually_sync(
            lambda: not [pid for pid, started in processes.items() if start_time(pid) == started], seconds=5
        )
    # What it could write was memory of its own; on disk there is its note, and the next start removes that.
    assert [path.name for path in public_folder.iterdir()] == ["notes"]
    assert ProcessNotes(public_folder / "notes").collect().notes == 1
    assert list((public_folder / "notes").iterdir()) == []


def starting(*words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, browser_start_main.__file__, *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def is_alive(pid: int) -> bool:
    """One that nobody has buried is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.promise("P-browser-ends")
def test_a_daemon_that_is_killed_before_bubblewrap_gives_its_word_leaves_nobody_waiting(tmp_path: Path) -> None:
    """bubblewrap is stopped at the one moment in which its death, which is ours, would leave what it has started."""
    for name in ("told", "word"):
        os.mkfifo(tmp_path / name)
    info_pipe = os.open(tmp_path / "told", os.O_RDWR | os.O_CLOEXEC)
    with starting("hold", str(tmp_path)) as starter:
        assert starter.stdout is not None
        bubblewrap, info = int(starter.stdout.readline()), b""
        while b"}" not in info:
            info += os.read(info_pipe, 4096)
        waiting = int(json.loads(info)["child-pid"])
        assert is_alive(bubblewrap) and is_alive(waiting)
        starter.kill()
    os.close(info_pipe)
    try:
        eventually_sync(lambda: not is_alive(bubblewrap) and not is_alive(waiting), seconds=60)
    finally:
        if is_alive(waiting):
            os.kill(waiting, signal.SIGKILL)


@pytest.mark.promise("P-browser-ends")
def test_a_daemon_that_is_killed_at_any_point_of_a_start_leaves_nothing() -> None:
    mark = new_mark()
    with starting("points", mark, "50") as starter:
        assert starter.wait(300) == 0
    eventually_sync(lambda: not marked(mark), seconds=60)
