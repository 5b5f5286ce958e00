"""Run every test on several workers, and those that failed once more, alone.

A test that passes alone has a race. REPORT names each of these tests, and more than three of them fail the run.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache") / "v" / "cache" / "lastfailed"
NOT_SOAK = ("-m", "not soak")
MOST_SECOND_TRIES = 3


def run_pytest(*arguments: str) -> int:
    program = Path(sys.executable).with_name("pytest")
    return subprocess.run([program, *arguments, *NOT_SOAK], check=False).returncode


def run_tests(workers: str, report: Path) -> int:
    report.write_text("")
    # Tests that are gone would stay in it.
    FAILED.unlink(missing_ok=True)
    if run_pytest("-n", workers, "--dist", "loadfile", "--no-loadscope-reorder") == 0:
        return 0
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    print("Once more, alone: what failed beside the others.", flush=True)
    status = run_pytest("--last-failed", "--last-failed-no-failures", "none")
    lines = ["These tests failed beside the others and had a second try:", *failed]
    if status == 0 and len(failed) > MOST_SECOND_TRIES:
        lines.append(f"They passed alone. {len(failed)} are too many: {MOST_SECOND_TRIES} may have a second try.")
        status = 1
    elif status == 0:
        lines.append("They passed alone. Each has a race worth mending.")
    report.write_text("\n".join([*lines, ""]))
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", required=True)
    parser.add_argument("--report", type=Path, required=True)
    chosen = parser.parse_args()
    sys.exit(run_tests(chosen.workers, chosen.report))
