"""The stack under load: a daemon with its browser in one network, machines with a worker and its proxy in others."""

import contextlib
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from fakes.daemon import Place
from fakes.node_process import approve, code_arguments, make_code
from fakes.star_of_networks import StarOfNetworks
from fakes.worker_process import WorkerProcess, join, workerd
from palyra.client.client import Client
from palyra.errors import PalyraError
from soak import settings, shifted_main
from soak.enclosure import Enclosure
from soak.pace import GaveUp, Pace
from soak.shelf import Shelf

EGRESSD = (sys.executable, "-m", "palyra.daemon.egressd")
PROGRAM = (sys.executable, "-P", str(Path(shifted_main.__file__)))
# From a start to the first answer, on a machine that others use too.
START_SECONDS = 90.0
STOP_SECONDS = 120.0
_ATTEMPTS = 3


class Home:
    """The daemon, its state on a disk of its own, its clock in a file."""

    def __init__(self, enclosure: Enclosure, networks: StarOfNetworks, pace: Pace) -> None:
        self.place = Place(enclosure.root / "home", settings.DAEMON)
        self.place.state = enclosure.disk / "state"
        self.place.through = networks.near.through
        self.log = enclosure.root / "daemon.log"
        self.life = 0
        self.token = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._pace = pace
        self._clock_file = enclosure.root / "clock"
        self._clock_file.write_bytes(bytes(shifted_main.OFFSET.size))
        with open(self._clock_file, "r+b") as file:
            self._clock = mmap.mmap(file.fileno(), shifted_main.OFFSET.size)
        # Whoever starts or ends the daemon holds this.
        self.lock = threading.RLock()

    @property
    def pid(self) -> int:
        return 0 if self.process is None else self.process.pid

    def start(self) -> float:
        """Seconds until it took calls."""
        with self.lock:
            begun = self._pace.awake
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    [*self.place.through, *PROGRAM, str(self._clock_file), "up", "--json"],
                    env=self.place.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            if not line or not (said := json.loads(line))["ok"]:
                raise GaveUp(f"the daemon did not start: {line!r} {self.log.read_text()[-2_000:]}")
            self.token = said["data"]["token"]
            self.life += 1
            return self._pace.awake - begun

    def client(self, token: str | None = None) -> Client:
        """For a thread that is in the daemon's network."""
        return Client(base_url=f"http://127.0.0.1:{settings.PORT}", token=token or self.token)

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self._buried()

    def stop(self) -> int:
        assert self.process is not None
        with self.lock:
            self.process.terminate()
            return self._buried()

    def _buried(self) -> int:
        assert self.process is not None and self.process.stdout is not None
        running = self.process
        try:
            self._pace.wait_for(lambda: running.poll() is not None, "the daemon ends", STOP_SECONDS, every=0.02)
        except GaveUp:
            running.send_signal(signal.SIGABRT)
            raise
        self.process.stdout.close()
        return int(running.returncode)

    def move_clock(self, seconds: float) -> None:
        shifted_main.OFFSET.pack_into(self._clock, 0, int(seconds * 1e9))

    def close(self) -> None:
        self._clock.close()


class Machine:
    """One worker with its proxy, in a network of its own."""

    def __init__(self, enclosure: Enclosure, networks: StarOfNetworks, number: int, home: Home, pace: Pace) -> None:
        self.number = number
        self.worker_id = ""
        self.worker: WorkerProcess | None = None
        self.proxy: subprocess.Popen[bytes] | None = None
        self.log = enclosure.root / f"machine{number}.log"
        self._root = enclosure.root / f"m{number}"
        self._through = networks.far[number].through
        self._home = home
        self._pace = pace
        self._fresh()

    def _fresh(self) -> None:
        self.place = Place(self._root, settings.MACHINE)
        self.place.through = self._through
        self._proxy_home = self._root / "proxy"
        self._policy = self._root / "policy.toml"
        self._policy.write_text(settings.PROXY_POLICY)

    @property
    def pids(self) -> list[int]:
        workers = [] if self.worker is None else [self.worker.process.pid]
        return workers + ([] if self.proxy is None else [self.proxy.pid])

    def join(self) -> None:
        """As a person would have both join."""
        made = make_code(self._home.place, "pin", kind="egress")
        words = [*self._through, *EGRESSD, "--state-dir", str(self._proxy_home), "join", *code_arguments(made)]
        with subprocess.Popen(words, env=self.place.environment, stdout=subprocess.PIPE, text=True) as joining:
            assert joining.stdout is not None
            approve(self._home.place, joining.stdout.readline().partition("shows the code ")[2][:6])
            if joining.wait(60) != 0:
                raise GaveUp("a proxy did not join")
        self.worker_id = join(self._home.place, self.place)

    def start_proxy(self) -> None:
        words = ("run", "--policy", str(self._policy), "--socket", str(self._root / "e.sock"))
        with open(self.log, "ab") as log:
            self.proxy = subprocess.Popen(
                [*self._through, *EGRESSD, "--state-dir", str(self._proxy_home), *words],
                env={**self.place.environment, "PALYRA_LOG__LEVEL": "warning"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.proxy.stdout is not None
        self.proxy.stdout.readline()

    def start_worker(self) -> None:
        self.worker = WorkerProcess(self.place, "run", "--slots", "3", "--egress-socket", str(self._root / "e.sock"))

    def start(self) -> None:
        self.start_proxy()
        self.start_worker()

    def end_worker(self, number: int) -> int:
        assert self.worker is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker.process.pid, number)
        running = self.worker.process
        self._pace.wait_for(lambda: running.poll() is not None, "a worker ends", STOP_SECONDS)
        said, status = self.worker.said, self.worker.wait()
        with open(self.log, "a") as log:
            log.write(said)
        self.worker = None
        return status

    def end_proxy(self, number: int) -> None:
        assert self.proxy is not None and self.proxy.stdout is not None
        self.proxy.send_signal(number)
        running = self.proxy
        self._pace.wait_for(lambda: running.poll() is not None, "a proxy ends", STOP_SECONDS)
        self.proxy.stdout.close()
        self.proxy = None

    def stop(self) -> None:
        if self.worker is not None:
            self.end_worker(signal.SIGTERM)
        if self.proxy is not None:
            self.end_proxy(signal.SIGTERM)

    def replace(self) -> None:
        """Leaves the fleet, and comes back as another one."""
        self.stop()
        self._again(self._leave)
        self.join_patiently()
        self.start()

    def join_patiently(self) -> None:
        self._again(self._join_anew)

    def _leave(self) -> None:
        left = workerd(self.place, "leave", "--json")
        if left.status != 0 and workerd(self.place, "status", "--json").data.get("joined"):
            raise GaveUp(f"a worker could not leave: {left.stdout} {left.stderr}")

    def _join_anew(self) -> None:
        shutil.rmtree(self._root)
        self._fresh()
        self.join()

    def _again(self, act: Callable[[], None]) -> None:
        """Commands have deadlines of their own, which pass while the machine stands still."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                act()
                return
            except (AssertionError, GaveUp, ValueError, subprocess.SubprocessError):
                if not left:
                    raise


class Stack:
    def __init__(self, enclosure: Enclosure, pace: Pace) -> None:
        self.enclosure = enclosure
        self.pace = pace
        self.networks = StarOfNetworks(settings.MACHINES)
        self.networks.near.run("ip", "address", "add", f"{settings.SHOP_ADDRESS}/32", "dev", "lo")
        for far in self.networks.far:
            far.run("ip", "route", "add", settings.SHOP_ADDRESS, "dev", "wire")
        self.home = Home(enclosure, self.networks, pace)
        self.machines = [
            Machine(enclosure, self.networks, number, self.home, pace) for number in range(settings.MACHINES)
        ]
        self.workspace = self.home.place.state / "workspace"
        self.shelf = Shelf(self.workspace, enclosure.disk / "shelf")

    def start(self) -> None:
        self.home.start()
        for machine in self.machines:
            machine.join_patiently()
            machine.start()
        self.install_skill()
        (self.workspace / "made").mkdir(exist_ok=True)
        self.shelf.folder.mkdir()
        (self.workspace / "greeting.txt").write_text("hello from the workspace\n")

    def install_skill(self) -> None:
        folder = self.enclosure.root / "skill"
        folder.mkdir()

        def palyra(*words: str) -> dict[str, str]:
            done = subprocess.run(
                [*self.home.place.through, sys.executable, "-m", "palyra.cli.main", *words, "--json"],
                env=self.home.place.environment,
                cwd=folder,
                capture_output=True,
                timeout=120,
                check=False,
            )
            if done.returncode != 0:
                raise GaveUp(f"palyra {' '.join(words)}: {done.stdout!r} {done.stderr!r}")
            data: dict[str, str] = json.loads(done.stdout)["data"]
            return data

        palyra("skill", "new", "hello", "--lang", "wat")
        palyra("skill", "build", "--dir", "hello")
        palyra("skill", "keygen", "publisher.key")
        archive = palyra("skill", "sign", "--dir", "hello", "--key", "publisher.key")["file"]
        palyra("skill", "trust", "add", "local", "publisher.pub")
        palyra("skill", "approve", "hello", "0.1.0", "--digest", palyra("skill", "install", archive)["digest"])

    def is_ready(self) -> bool:
        """Asked by a thread that is in the daemon's network."""
        try:
            with self.home.client() as client:
                client.ready()
            return True
        except PalyraError:
            return False

    def stop(self) -> int:
        """Workers first; the daemon's own status."""
        for machine in self.machines:
            machine.stop()
        return self.home.stop()

    def once_more(self) -> int:
        """One more life, in which the daemon and its browser find what lives before it left; the daemon's status."""
        self.home.start()
        self.pace.wait_for(self._has_browser, "the browser daemon is there", START_SECONDS)
        return self.home.stop()

    def _has_browser(self) -> bool:
        try:
            with self.home.client() as client:
                client.browser_sessions()
            return True
        except PalyraError:
            return False

    def close(self) -> None:
        self.networks.close()
        self.home.close()
