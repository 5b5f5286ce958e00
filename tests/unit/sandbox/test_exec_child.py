"""The Python executor must do what the native one does: the launcher's tests run on both."""

import errno
from pathlib import Path

import pytest

from fakes.eventually import eventually
from fakes.launching import SHOW, python, run
from palyra.sandbox.domain.launch_spec import LandlockRules, LaunchFailed, LaunchSpec, build_tier_b_rlimits
from palyra.sandbox.launch import supervisor_pool
from palyra.sandbox.launch.launcher import Launcher
from palyra.sandbox.layers.seccomp import build_tier_b_filter


@pytest.fixture(params=["native", "python"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        without = "import palyra.sandbox.launch.supervisor.native_code as n; n.open_image = lambda: None; "
        code = supervisor_pool._ZYGOTE.replace("from palyra", without + "from palyra", 1)
        monkeypatch.setattr(supervisor_pool, "_ZYGOTE", code)
    return str(request.param)


async def test_the_executor_is_the_one_that_was_asked_for(executor: str) -> None:
    async with Launcher() as launcher:
        supervisor = await launcher._pool.take()
        assert supervisor.native is (executor == "native")
        wanted = "memfd:palyra-start" if executor == "native" else "python"
        await eventually(lambda: wanted in str(Path(f"/proc/{supervisor.program}/exe").readlink()))
        supervisor.close()


async def test_both_give_a_program_the_same_world(executor: str, tmp_path: Path) -> None:
    limits = build_tier_b_rlimits(
        cpu_seconds=9, memory_bytes=1 << 30, pids=4000, open_files=77, file_bytes=1 << 20, tasks_of_user=4000
    )
    rules = LandlockRules(read=("/usr", "/lib", "/lib64", "/etc", "/proc", "/nonexistent"), write=(str(tmp_path),))
    spec = python(
        SHOW + "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))\nopen('made', 'w').write('x')\n",
        cwd=str(tmp_path).encode(),
        rlimits=limits,
        landlock=rules,
        seccomp=build_tier_b_filter("x86_64"),
        data_fds=((9, b"nine"),),
    )
    async with Launcher() as launcher:
        for _ in range(3):
            ended, output = await run(launcher, spec)
            assert ended.exit_code == 0, output
            assert "[0, 1, 2, 3, 9]" in output
            assert output.splitlines()[-2].split()[-2:] == ["1", "2"]
            assert output.splitlines()[-1] == "(77, 77)"
        with pytest.raises(LaunchFailed) as failed:
            await run(launcher, LaunchSpec(argv=(b"/bin/true",), landlock=LandlockRules(write=("/nonexistent/w",))))
        assert failed.value.details["stage"] == "landlock"
        assert failed.value.details["errno"] == errno.ENOENT
        assert failed.value.details["subject"] == "/nonexistent/w"


async def test_both_read_a_long_order_from_a_memory_file(executor: str) -> None:
    spec = python("import sys; print(len(sys.argv[1]), open(5).read())", "x" * 100_000, data_fds=((5, b"five"),))
    async with Launcher() as launcher:
        for _ in range(2):
            _, output = await run(launcher, spec)
            assert output == "100000 five\n"
