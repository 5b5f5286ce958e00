"""All attempts, in the order in which they are made and shown."""

from typing import Final

from palyra.doctor.attacks.attempt import AttackClass, Attempt, Bait
from palyra.doctor.attacks.file_attempts import FILE_ATTEMPTS
from palyra.doctor.attacks.kernel_attempts import KERNEL_ATTEMPTS
from palyra.doctor.attacks.outside_attempts import NETWORK_ATTEMPTS, PROCESS_ATTEMPTS
from palyra.doctor.attacks.planted_attempts import PLANTED_ATTEMPTS
from palyra.doctor.attacks.resource_attempts import RESOURCE_ATTEMPTS
from palyra.sandbox.domain.profile import Layer, SandboxTier

# Attempts on the checks before the start and on the environment, as data. The same checks stand before both tiers.

_ENVIRONMENT: Final = (Layer.ENVIRONMENT,)
_SHELLS: Final = frozenset({Bait.SHELLS})


def _guard(name: str, title: str, *command: str, env: tuple[tuple[str, str], ...] = (), reason: str = "") -> Attempt:
    return Attempt(
        id=f"guards.{name}",
        kind=AttackClass.ENVIRONMENT,
        title=title,
        c=_ENVIRONMENT,
        b=_ENVIRONMENT,
        command=command,
        env=env,
        refused_by=(f"sandbox.{reason or 'interpreter_denied'}",),
        bait=_SHELLS,
    )


GUARD_ATTEMPTS: Final = (
    Attempt(
        id="guards.environment_leak",
        kind=AttackClass.ENVIRONMENT,
        title="find a variable of the process that started the sandbox",
        c=_ENVIRONMENT,
        b=_ENVIRONMENT,
        probe="environment",
        arguments={"token": "{token}"},
    ),
    _guard("shell", "start a shell", "sh", "-c", "echo {token}"),
    _guard("shell_path", "start a shell by its path", "/bin/sh", "-c", "echo {token}"),
    _guard("shell_symlink", "start a shell through a link", "./innocent-link", "-c", "echo {token}"),
    _guard("shell_copy", "start a copy of a shell", "./innocent-copy", "-c", "echo {token}"),
    _guard("shell_env", "start a shell by env", "env", "sh", "-c", "echo {token}"),
    _guard("shell_find", "start a shell by find -exec", "find", ".", "-exec", "sh", "-c", "echo {token}", ";"),
    _guard("shell_xargs", "start a shell by xargs", "xargs", "sh", "-c", "echo {token}"),
    _guard("shell_timeout", "start a shell by timeout", "timeout", "9", "sh", "-c", "echo {token}"),
    _guard("shell_loader", "start a shell by the dynamic loader", "{loader}", "{shell}", "-c", "echo {token}"),
    _guard("script", "start a script that says it is one for a shell", "./innocent-script"),
    _guard("script_bare", "start a script that says nothing", "./innocent-text"),
    _guard("awk", "start a shell by awk", "awk", 'BEGIN { system("echo {token}") }'),
    _guard(
        "tar", "start a shell by tar", "tar", "-cf", "/dev/null", "--checkpoint=1", "--checkpoint-action=exec=sh", "."
    ),
    _guard("git_alias", "start a shell by a git alias", "git", "-c", "alias.x=!echo {token}", "x"),
    _guard("git_pager", "start a shell by git's pager", "git", "-c", "core.pager=echo {token}", "-p", "log"),
    _guard("python", "start Python by a version's name", "python3.11", "-c", "print('{token}')"),
    _guard("ld_preload", "load code by LD_PRELOAD", "ls", env=(("LD_PRELOAD", "{workspace}/evil.so"),)),
    _guard("ld_audit", "load code by LD_AUDIT", "ls", env=(("LD_AUDIT", "{workspace}/evil.so"),)),
    _guard("git_ssh", "run a program by GIT_SSH_COMMAND", "git", "status", env=(("GIT_SSH_COMMAND", "sh"),)),
    _guard("home", "move the home directory", "ls", env=(("HOME", "{outside}"),)),
    _guard("argument_outside", "name a file outside", "cat", "{secret}", reason="workspace_scope_denied"),
    _guard("argument_link", "name a link that leads outside", "cat", "link-to-secret", reason="workspace_scope_denied"),
    _guard("argument_magic", "name a file of /proc", "cat", "/proc/self/environ", reason="workspace_scope_denied"),
    _guard("argument_host", "name a host", "git", "ls-remote", "https://192.0.2.1/x", reason="egress_denied"),
)


ATTEMPTS: Final[tuple[Attempt, ...]] = (
    *FILE_ATTEMPTS,
    *PLANTED_ATTEMPTS,
    *KERNEL_ATTEMPTS,
    *PROCESS_ATTEMPTS,
    *NETWORK_ATTEMPTS,
    *RESOURCE_ATTEMPTS,
    *GUARD_ATTEMPTS,
)


def attempts_in(tier: SandboxTier) -> tuple[Attempt, ...]:
    return tuple(attempt for attempt in ATTEMPTS if attempt.promise(tier) is not None)
