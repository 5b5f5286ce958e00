"""Chromium's flags as data, each with its reason. Pure.

Together with the network namespace and the guard they are one of three fences: with these flags alone a capture saw no
packet beside the guard's, and a namespace alone gave the same. A switch that Chromium does not know is ignored without
a word, so the fence is checked by what happens on the wire, in the silence test.
"""

from typing import Final

import msgspec

from palyra.browser.engine_limits import GUARD_PORT, MIB

PROFILE: Final = "/browser/profile"
DOWNLOADS: Final = "/browser/downloads"
UPLOADS: Final = "/browser/uploads"
CACHE: Final = "/browser/cache"

_CACHE_BYTES: Final = 32 * MIB

NO_SANDBOX: Final = "no-sandbox"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """``fence``: without it traffic could go past the guard, so its presence is read back from the process."""

    name: str
    value: str = ""
    reason: str
    fence: bool = False

    @property
    def word(self) -> str:
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


class FeatureOff(msgspec.Struct, frozen=True):
    name: str
    reason: str


_PROXIED_ONLY: Final = "disable_non_proxied_udp"

FEATURES_OFF: Final = (
    FeatureOff("AutofillServerCommunication", "forms are nobody's business"),
    FeatureOff("CertificateTransparencyComponentUpdater", "fetches lists from outside"),
    FeatureOff("DialMediaRouteProvider", "looks for devices on the network"),
    FeatureOff("MediaRouter", "looks for devices on the network"),
    FeatureOff("NetworkTimeServiceQuerying", "asks a server for the time"),
    FeatureOff("OptimizationHints", "fetches hints about pages"),
    FeatureOff("SpareRendererForSitePerProcess", "a process in reserve for every session: 10 MB each"),
    FeatureOff("Translate", "sends text away, and covers pages with an offer"),
    FeatureOff("WebRtcHideLocalIpsWithMdns", "would send multicast names"),
)

_GUARDED: Final = (
    Flag(
        name="proxy-server",
        value=f"socks5://127.0.0.1:{GUARD_PORT}",
        reason="the guard for everything: a proxy per context is forgotten when the network service restarts",
        fence=True,
    ),
    Flag(
        name="proxy-bypass-list",
        value="<-loopback>",
        reason="without it loopback and link-local addresses, 169.254.169.254 too, go direct",
        fence=True,
    ),
    Flag(
        name="host-resolver-rules",
        value="MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        reason="no name is looked up here; the guard resolves",
        fence=True,
    ),
    Flag(
        name="force-webrtc-ip-handling-policy",
        value=_PROXIED_ONLY,
        reason="no UDP past the proxy; the spelling that the headless shell obeys",
        fence=True,
    ),
    Flag(
        name="webrtc-ip-handling-policy",
        value=_PROXIED_ONLY,
        reason="the same; the spelling that full Chromium obeys",
        fence=True,
    ),
    Flag(name="disable-quic", reason="UDP does not go through the guard", fence=True),
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
        value=",".join(each.name for each in FEATURES_OFF),
        reason="; ".join(f"{each.name}: {each.reason}" for each in FEATURES_OFF),
    ),
)

_SHAPE: Final = (
    Flag(name="remote-debugging-pipe", reason="CDP over two descriptors; there is no port to reach", fence=True),
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


def missing_fences(words: tuple[str, ...]) -> list[str]:
    """The flags of the fence that a process was not started with, and those that would undo one, by name."""
    wanted = {flag.name: flag.word for flag in FLAGS if flag.fence}
    wrong = [name for name, word in wanted.items() if word not in words]
    given = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")]
    wrong += [name for name in wanted if given.count(name) > 1]
    return wrong + [name for name in given if name in ("no-proxy-server", "remote-debugging-port")]
