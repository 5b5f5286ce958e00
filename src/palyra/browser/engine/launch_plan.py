"""The command line of Chromium and of bubblewrap around it, as data, each part with its reason.

With these flags alone a capture saw no packet beside the guard's, and the network namespace alone gave the same.
Chromium silently ignores unknown switches, so the silence test checks what happens on the wire.
"""

from typing import Final

import msgspec

from palyra.browser.domain.limits import GUARD_PORT, FolderSizes
from palyra.limits import MIB

PROFILE: Final = "/browser/profile"
DOWNLOADS: Final = "/browser/downloads"
UPLOADS: Final = "/browser/uploads"
CACHE: Final = "/browser/cache"

_CACHE_BYTES: Final = 32 * MIB

NO_SANDBOX: Final = "no-sandbox"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """``guards``: without the flag traffic could bypass the guard, so its presence is read back from the process."""

    name: str
    value: str = ""
    reason: str
    guards: bool = False

    @property
    def word(self) -> str:
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


_PROXIED_ONLY: Final = "disable_non_proxied_udp"

FEATURES_OFF: Final = {
    "AutofillServerCommunication": "forms are nobody's business",
    "CertificateTransparencyComponentUpdater": "fetches lists from outside",
    "DialMediaRouteProvider": "looks for devices on the network",
    "MediaRouter": "looks for devices on the network",
    "NetworkTimeServiceQuerying": "asks a server for the time",
    "OptimizationHints": "fetches hints about pages",
    "SpareRendererForSitePerProcess": "a process in reserve for every session: 10 MB each",
    "Translate": "sends text away, and covers pages with an offer",
    "WebRtcHideLocalIpsWithMdns": "would send multicast names",
}

_GUARDED: Final = (
    Flag(
        name="proxy-server",
        value=f"socks5://127.0.0.1:{GUARD_PORT}",
        reason="the guard for everything: a proxy per context is forgotten when the network service restarts",
        guards=True,
    ),
    Flag(
        name="proxy-bypass-list",
        value="<-loopback>",
        reason="without it loopback and link-local addresses, 169.254.169.254 too, go direct",
        guards=True,
    ),
    Flag(
        name="host-resolver-rules",
        value="MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        reason="no name is looked up here; the guard resolves",
        guards=True,
    ),
    Flag(
        name="force-webrtc-ip-handling-policy",
        value=_PROXIED_ONLY,
        reason="no UDP past the proxy; the spelling that the headless shell obeys",
        guards=True,
    ),
    Flag(
        name="webrtc-ip-handling-policy",
        value=_PROXIED_ONLY,
        reason="the same; the spelling that full Chromium obeys",
        guards=True,
    ),
    Flag(name="disable-quic", reason="UDP does not go through the guard", guards=True),
)

_SILENT: Final = (
    Flag(name="disable-background-networking", reason="no requests that no page made"),
    Flag(name="disable-component-update", reason="no downloads of components"),
    Flag(name="disable-domain-reliability", reason="no reports to others"),
    Flag(name="disable-client-side-phishing-detection", reason="no model downloads"),
    Flag(name="disable-sync", reason="no account"),
    Flag(name="disable-breakpad", reason="no crash reports: memory holds secrets"),
    Flag(name="metrics-recording-only", reason="no usage reports"),
    Flag(name="no-pings", reason="no ping requests of links"),
    Flag(name="dns-prefetch-disable", reason="no look-ups for links that nobody followed"),
    Flag(
        name="disable-features",
        value=",".join(FEATURES_OFF),
        reason="; ".join(f"{name}: {reason}" for name, reason in FEATURES_OFF.items()),
    ),
)

_SHAPE: Final = (
    Flag(name="remote-debugging-pipe", reason="CDP over two descriptors; there is no port to reach", guards=True),
    Flag(name="user-data-dir", value=PROFILE, reason="a folder in memory with a size limit"),
    Flag(name="disk-cache-dir", value=CACHE, reason="apart from the profile, so that profiles stay small"),
    Flag(name="disk-cache-size", value=str(_CACHE_BYTES), reason="smaller than the folder it is in"),
    Flag(name="site-per-process", reason="sites in processes of their own, however little memory there is"),
    Flag(name="no-first-run", reason="no greeting"),
    Flag(name="no-default-browser-check", reason="there is no desktop"),
    Flag(name="disable-extensions", reason="nothing between page and agent"),
    Flag(name="disable-default-apps", reason="nothing installed by itself"),
    Flag(name="password-store", value="basic", reason="no keyring of the host's"),
    Flag(name="disable-gpu", reason="there is none, and drivers are a large surface"),
    Flag(
        name="disable-software-rasterizer",
        reason="no WebGL drawn by the processor: 25 MB a session, and a large surface in a process without a sandbox",
    ),
    Flag(name="mute-audio", reason="nobody listens"),
    Flag(name="enable-features", value="CDPScreenshotNewSurface", reason="screenshots without moving the window"),
    Flag(name="disable-background-timer-throttling", reason="a tab in the background works at the same speed"),
    Flag(name="disable-backgrounding-occluded-windows", reason="the same"),
    Flag(name="disable-renderer-backgrounding", reason="the same"),
    Flag(name="disable-hang-monitor", reason="no dialog that no page opened"),
    Flag(name="disable-gpu-shader-disk-cache", reason="nothing is drawn by shaders; three caches less in each profile"),
    Flag(name="no-unsandboxed-zygote", reason="a process less in every session, which would wait to start another two"),
    Flag(
        name="window-size", value="1280,720", reason="a common size until the session sets one; each line costs memory"
    ),
)

FLAGS: Final = (*_SHAPE, *_GUARDED, *_SILENT)
WITHOUT_SANDBOX: Final = Flag(name=NO_SANDBOX, reason="only where the operator allowed it, and the receipt says so")


def flags(*, own_sandbox: bool = True) -> tuple[Flag, ...]:
    return FLAGS if own_sandbox else (*FLAGS, WITHOUT_SANDBOX)


def missing_guard_flags(words: tuple[str, ...]) -> list[str]:
    """Return the guarding flags that a process was not started with, and the flags that undo one."""
    wanted = {flag.name: flag.word for flag in FLAGS if flag.guards}
    wrong = [name for name, word in wanted.items() if word not in words]
    given = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")]
    wrong += [name for name in wanted if given.count(name) > 1]
    return wrong + [name for name in given if name in ("no-proxy-server", "remote-debugging-port")]


# bubblewrap's options.
#
# Nothing of the host can be written. The writable folders are memory with a size limit. They end with the last process
# and the last descriptor on them, so a killed daemon leaves no folder behind. The network is a namespace with nothing
# but a loopback, on which the guard's listener is opened from outside before Chromium begins.

# Descriptor numbers in the started process. Chromium fixes the first two.
CDP_READ_FD: Final = 3
CDP_WRITE_FD: Final = 4
GO_FD: Final = 5
READY_FD: Final = 6
INFO_FD: Final = 7
LIFE_FD: Final = 8

# Reports that everything is mounted, and becomes Chromium on a line from the daemon. A daemon that dies before closes
# the pipe, and nothing is started. No core files: memory holds typed text.
_GATE: Final = (
    f'ulimit -c 0 && echo >&{READY_FD} && read -r go <&{GO_FD} && exec "$@" {GO_FD}<&- {READY_FD}>&- {INFO_FD}>&-'
)
# bubblewrap asks to die with the daemon before it releases its child, which has not asked yet. If the daemon is killed
# in between, bubblewrap dies and the child waits for ever. As the first process of a pid namespace the child ignores
# signals that the kernel sends for a pipe or a terminal, and heeds only one from outside. So a shell is there before
# bubblewrap, in its process group, and kills the group when the daemon is gone.
_WATCH: Final = (
    f"{{ read -r line || kill -s KILL 0; }} <&{LIFE_FD} {CDP_READ_FD}<&- {CDP_WRITE_FD}>&- {GO_FD}<&- {READY_FD}>&- "
    f'{INFO_FD}>&- {LIFE_FD}<&- >&- 2>&- & exec "$@" {LIFE_FD}<&-'
)
_SHELL: Final = "/bin/sh"


class HostLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the needed programs. ``links`` and ``directories`` are the host's /lib and the like."""

    bwrap: str
    chromium: str
    shell: str
    setpriv: str
    links: tuple[tuple[str, str], ...] = ()
    directories: tuple[str, ...] = ()


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account that Chromium runs as. ``dropped``: the daemon is root, and this is another account."""

    uid: int
    gid: int
    dropped: bool


class PlanLine(msgspec.Struct, frozen=True):
    reason: str
    words: tuple[str, ...]


class ChromiumPlan(msgspec.Struct, frozen=True, kw_only=True):
    lines: tuple[PlanLine, ...]
    flags: tuple[Flag, ...]
    account: Account
    sizes: FolderSizes
    own_sandbox: bool

    @property
    def argv(self) -> tuple[str, ...]:
        return (*(word for line in self.lines for word in line.words), *(flag.word for flag in self.flags))


def writable_folders(sizes: FolderSizes) -> tuple[tuple[str, int, str], ...]:
    return (
        (PROFILE, sizes.profile, "the profile"),
        (DOWNLOADS, sizes.downloads, "downloads: what grows past it fails"),
        (UPLOADS, sizes.uploads, "files that a page may be given"),
        (CACHE, sizes.cache, "the cache, which nobody keeps"),
        ("/dev/shm", sizes.shared_memory, "memory that its processes share"),  # noqa: S108
        ("/tmp", sizes.temporary, "temporary files"),  # noqa: S108
    )


def chromium_plan(
    layout: HostLayout, account: Account, sizes: FolderSizes, flags: tuple[Flag, ...], *, own_sandbox: bool
) -> ChromiumPlan:
    lines = [
        PlanLine("a daemon that is killed while it is built takes it along", (layout.shell, "-c", _WATCH, "sh")),
        *_dropped(layout, account),
        *_namespaces(layout),
        *_root(layout),
        *_writable(layout, sizes),
        *_start(layout),
    ]
    return ChromiumPlan(lines=tuple(lines), flags=flags, account=account, sizes=sizes, own_sandbox=own_sandbox)


def _dropped(layout: HostLayout, account: Account) -> list[PlanLine]:
    if not account.dropped:
        return []
    return [
        PlanLine(
            "Chromium refuses its own sandbox to root; nothing of root's goes along",
            (
                layout.setpriv,
                f"--reuid={account.uid}",
                f"--regid={account.gid}",
                "--clear-groups",
                "--inh-caps=-all",
                "--no-new-privs",
                "--",
            ),
        )
    ]


def _namespaces(layout: HostLayout) -> list[PlanLine]:
    return [
        PlanLine("the program that builds it", (layout.bwrap,)),
        # Without --disable-userns: Chromium's own sandbox makes a user namespace inside.
        PlanLine("the host's root means nothing inside", ("--unshare-user",)),
        PlanLine("no exit but the guard's listener, for a taken-over network process too", ("--unshare-net",)),
        PlanLine("it sees and signals its own processes only, and all end with the first", ("--unshare-pid",)),
        PlanLine("no shared memory with the host", ("--unshare-ipc",)),
        PlanLine("no name of the host's", ("--unshare-uts", "--hostname", "browser")),
        PlanLine("no look at the host's groups", ("--unshare-cgroup-try",)),
        PlanLine("a daemon that is killed takes it along", ("--die-with-parent",)),
        PlanLine("no terminal of the host's", ("--new-session",)),
        PlanLine("no capability, also not over its own namespaces", ("--cap-drop", "ALL")),
        PlanLine("which process is the first inside", ("--info-fd", str(INFO_FD))),
    ]


def _root(layout: HostLayout) -> list[PlanLine]:
    return [
        PlanLine("libraries", ("--ro-bind", "/usr/lib", "/usr/lib")),
        PlanLine("libraries, where they are kept apart", ("--ro-bind-try", "/usr/lib64", "/usr/lib64")),
        *(PlanLine("the host's own link into /usr", ("--symlink", target, path)) for path, target in layout.links),
        *(PlanLine("a host that keeps this apart", ("--ro-bind", path, path)) for path in layout.directories),
        PlanLine("the only other program: the one that waits to become Chromium", ("--ro-bind", layout.shell, _SHELL)),
        *(
            PlanLine(reason, ("--ro-bind-try", path, path))
            for path, reason in (
                ("/usr/share/fonts", "fonts"),
                ("/usr/share/fontconfig", "how fonts are chosen"),
                ("/etc/fonts", "how fonts are chosen"),
                ("/usr/share/mime", "types of files"),
                ("/usr/share/zoneinfo", "time zones"),
                ("/etc/localtime", "the time zone"),
                ("/etc/ssl/certs", "public certificates"),
                ("/etc/ld.so.cache", "finding libraries quickly"),
            )
        ),
        PlanLine("its own processes", ("--proc", "/proc")),
        PlanLine("devices that give away nothing", ("--dev", "/dev")),
    ]


def _writable(layout: HostLayout, sizes: FolderSizes) -> list[PlanLine]:
    folder = layout.chromium.rpartition("/")[0]
    lines = [
        PlanLine(reason, ("--perms", "0700", "--size", str(size), "--tmpfs", path))
        for path, size, reason in writable_folders(sizes)
    ]
    # After those, so that none of them can cover it.
    lines.append(PlanLine("Chromium itself", ("--ro-bind", folder, folder)))
    lines.append(PlanLine("nothing beside those folders can be written", ("--remount-ro", "/dev", "--remount-ro", "/")))
    return lines


def _start(layout: HostLayout) -> list[PlanLine]:
    environment = (("HOME", PROFILE), ("XDG_CACHE_HOME", CACHE), ("LANG", "C.UTF-8"), ("PATH", "/nonexistent"))
    return [
        PlanLine("none of the daemon's variables", ("--clearenv",)),
        *(PlanLine("a variable that Chromium needs", ("--setenv", name, value)) for name, value in environment),
        PlanLine("a folder that always exists", ("--chdir", "/")),
        PlanLine("waits until its network and folders were looked at", ("--", _SHELL, "-c", _GATE, "sh")),
        PlanLine("the binary: the wrappers do not end with what they start", (layout.chromium,)),
    ]
