"""How this device is, in a few numbers."""

import contextlib
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any


def system_health(folder: Path, software_version: str) -> dict[str, Any]:
    """What a system does not tell is left out."""
    health: dict[str, Any] = {
        "platform": platform_name(),
        "software_version": software_version,
        "cpus": os.cpu_count() or 1,
        "time_ms": time.time_ns() // 1_000_000,
    }
    with contextlib.suppress(OSError):
        health["load"] = [round(each, 2) for each in os.getloadavg()]
    with contextlib.suppress(OSError):
        disk = shutil.disk_usage(folder)
        health["disk"] = {"total_bytes": disk.total, "free_bytes": disk.free}
    with contextlib.suppress(OSError, ValueError, IndexError):
        health["uptime_seconds"] = int(float(Path("/proc/uptime").read_text().split()[0]))
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        health["memory"] = {
            "total_bytes": _kib(lines["MemTotal"]),
            "available_bytes": _kib(lines["MemAvailable"]),
        }
    return health


def platform_name() -> str:
    return f"{platform.system().lower()}-{platform.machine()}"


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024
