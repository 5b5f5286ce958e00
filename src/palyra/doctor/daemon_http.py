"""Asks a daemon whether it is there."""

import http.client
from typing import Final

from palyra.doctor.report import Finding, ok, warn

TIMEOUT_SECONDS: Final = 2.0


def daemon(host: str, port: int) -> Finding:
    """A daemon that is not running is no fault of the machine, so this is at worst a warning."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        connection.request("GET", "/healthz", headers={"Connection": "close"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return warn(f"no answer from {where}: {error or type(error).__name__}", "start it with `palyra up`")
    finally:
        connection.close()
    if status != http.client.OK:
        return warn(f"{where}/healthz answers {status}", "look at the daemon's log")
    return ok(f"{where} is healthy")
