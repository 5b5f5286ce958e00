"""Attempts on files, as data: out of the workspace, against protected names, and to plant what harms outside."""

from typing import Any, Final

from palyra.doctor.attacks.attempt import AttackClass, Attempt, Bait, Layers
from palyra.sandbox.domain.profile import Layer

_OUTSIDE: Final = (Layer.MINIMAL_ROOT, Layer.MOUNT_NAMESPACE)
_LANDLOCK: Final = (Layer.LANDLOCK,)
_PROTECTED: Final = (Layer.PROTECTED_NAMES,)
_PROC: Final = (Layer.PID_NAMESPACE, Layer.MINIMAL_ROOT)
_MOUNTS: Final = (Layer.SECCOMP, Layer.CAPABILITIES)
# What only root can do: the filter lets the call through, so it takes the loss of capabilities to stop it.
_STRONG: Final = (Layer.CAPABILITIES, Layer.NO_NEW_PRIVS)
# Tier B keeps a program in the workspace, but nothing in the workspace from the program.
_NOT_PROMISED: Final[Layers] = ()


def _outside(name: str, title: str, probe: str, *, b: Layers = _LANDLOCK, **arguments: Any) -> Attempt:
    bait = frozenset({Bait.LINKS_OUT})
    # Beneath the sandbox's own /tmp a file of the same path may be made: it is another one.
    seen_outside = probe == "create"
    return _file(name, title, probe, c=_OUTSIDE, b=b, bait=bait, arguments=arguments, seen_outside=seen_outside)


def _protected(name: str, title: str, probe: str, **arguments: Any) -> Attempt:
    return _file(name, title, probe, c=_PROTECTED, b=_NOT_PROMISED, arguments=arguments)


def _setuid(way: str, title: str) -> Attempt:
    found = (Layer.SECCOMP,)
    return _file(f"setuid_{way}", title, "setuid", c=found, b=found, arguments={"way": way})


def _file(name: str, title: str, probe: str, **more: Any) -> Attempt:
    return Attempt(id=f"files.{name}", kind=AttackClass.FILES, title=title, probe=probe, **more)


FILE_ATTEMPTS: Final = (
    _outside("read_absolute", "read a secret by its path", "read", paths=["{secret}"]),
    _outside("read_symlink", "read a secret through a link in the workspace", "read", paths=["link-to-secret"]),
    _outside("read_link_chain", "read a secret through a linked directory", "read", paths=["link-out/secret"]),
    _outside("read_dotdot", "read a secret through ..", "read", paths=["../outside/secret"]),
    _outside("read_moved_cwd", "climb out of a directory that is moved", "parents", path="outside/secret"),
    _outside("read_new_symlink", "read and write through a link made inside", "new_symlink", path="{secret}"),
    _outside("hard_link", "give a file outside a second name inside", "hard_link", path="{secret}"),
    _outside(
        "read_own_root",
        "read a secret through /proc/self/root and /proc/self/cwd",
        "read",
        paths=["/proc/self/root{secret}", "/proc/self/cwd/../outside/secret", "/proc/thread-self/root{secret}"],
    ),
    _file(
        "read_process_root",
        "read a secret through the root and directory of other processes",
        "read",
        c=_PROC,
        b=_LANDLOCK,
        arguments={
            "paths": [
                "/proc/1/root{secret}",
                "/proc/{victim}/root{secret}",
                "/proc/{victim}/cwd/secret",
                "/proc/{victim}/fd/{victim_descriptor}",
            ]
        },
    ),
    _file(
        "inherited_descriptor",
        "read through a descriptor that was left open",
        "inherited",
        c=(Layer.WORKSPACE,),
        b=(Layer.RLIMITS, Layer.NO_NEW_PRIVS),
    ),
    _file(
        "init_descriptors",
        "reach outside through what the sandbox's own first process holds open",
        "init_descriptors",
        c=(Layer.MINIMAL_ROOT, Layer.PID_NAMESPACE),
        b=_LANDLOCK,
        arguments={"secret": "{secret}"},
    ),
    _file(
        "file_handle",
        "open a secret by the number of its inode",
        "file_handle",
        c=(Layer.SECCOMP, Layer.CAPABILITIES),
        b=(Layer.SECCOMP,),
        arguments={"handle": "{handle}"},
    ),
    _outside("shadow", "read the system's own secrets", "open_for_reading", paths=["/etc/shadow", "/etc/sudoers"]),
    _outside("write_absolute", "write outside by path", "write", path="{marker}"),
    _outside("write_symlink", "write outside through a link", "write", path="link-to-marker"),
    _outside("create_outside", "make a file outside", "create", path="{outside}/new"),
    _outside("truncate_outside", "empty a file outside", "truncate", path="{marker}"),
    _outside("rename_out", "move a file out of the workspace", "rename", path="ordinary", to="{outside}/moved"),
    _outside("rename_in", "move a file from outside into the workspace", "rename", path="{marker}", to="taken"),
    _outside("unlink_outside", "remove a file outside", "unlink", path="{marker}"),
    _outside("chmod_outside", "change the mode of a file outside", "chmod", path="{marker}", b=_NOT_PROMISED),
    _outside("utime_outside", "change the times of a file outside", "utime", path="{marker}", b=_NOT_PROMISED),
    _outside("pipe_outside", "write into a pipe outside", "open_for_writing", paths=["{pipe}"]),
    _file(
        "system_files",
        "write to the system's programs and settings",
        "open_for_writing",
        c=_OUTSIDE,
        b=_LANDLOCK,
        arguments={"paths": ["/usr/bin/env", "/etc/passwd", "/etc/ld.so.cache", "/usr/lib/os-release"]},
    ),
    _file(
        "git_config",
        "overwrite .git/config",
        "write",
        c=_PROTECTED,
        b=_NOT_PROMISED,
        arguments={"path": ".git/config"},
        seen_outside=True,
    ),
    _protected("git_hook", "overwrite a hook", "write", path=".git/hooks/pre-commit"),
    _protected("new_git_hook", "add a hook", "create", path=".git/hooks/post-checkout"),
    _protected("env_file", "overwrite .env", "write", path=".env"),
    _protected("env_proc", "overwrite .env through /proc/1/root", "write", path="/proc/1/root{workspace}/.env"),
    _protected("env_reopen", "reopen .env for writing through /proc", "reopen", path=".env"),
    _file(
        "truncate_config",
        "empty .git/config",
        "truncate",
        c=_PROTECTED,
        b=_NOT_PROMISED,
        arguments={"path": ".git/config"},
        seen_outside=True,
    ),
    _protected("chmod_hook", "change the mode of a hook", "chmod", path=".git/hooks/pre-commit"),
    _protected("unlink_env", "remove .env", "unlink", path=".env"),
    _protected("rename_git", "rename .git away", "rename", path=".git", to=".git.old"),
    _protected("rename_hooks", "rename the hooks away", "rename", path=".git/hooks", to=".git/old"),
    _protected("exchange_git", "let .git and another directory change places", "exchange", path=".git"),
    _protected("replace_git", "put another .git in its place", "replace_parent", path=".git"),
    _protected("rename_deep_parent", "rename a directory far above a protected file", "rename", path="deep", to="d"),
    _protected("link_env", "give .env a second name and write to that", "hard_link", path=".env"),
    _protected("rename_over_env", "move a file over .env", "rename", path="ordinary", to=".env"),
    _file(
        "planted_repository",
        "plant a hook in a repository that is new",
        "create",
        c=_PROTECTED,
        arguments={"path": "vendor/.git/hooks/post-checkout"},
        seen_outside=True,
    ),
    _file(
        "planted_by_rename",
        "move a directory with a hook to where git looks for it",
        "plant_by_rename",
        c=_PROTECTED,
        seen_outside=True,
    ),
    _file(
        "planted_deep",
        "plant a hook deeper than anybody looks",
        "create",
        c=_PROTECTED,
        arguments={"path": "d/" * 80 + ".git/hooks/post-checkout"},
        seen_outside=True,
    ),
    _file(
        "alias_of_env",
        "write to .env through a second name that it already had",
        "write",
        c=_PROTECTED,
        arguments={"path": "second-name"},
        bait=frozenset({Bait.ALIAS}),
    ),
    _file(
        "ghost_mount_point",
        "have the sandbox make a file outside through a link with a protected name",
        "nothing",
        c=_PROTECTED,
        b=_LANDLOCK,
        bait=frozenset({Bait.GHOST_LINK}),
    ),
    _file("mount_over", "mount over .git", "mount_over", c=_MOUNTS, b=_MOUNTS, arguments={"path": ".git"}),
    _file(
        "remount",
        "make the mount of .env writable",
        "remount_writable",
        c=_MOUNTS,
        arguments={"path": ".env"},
    ),
    _file("unmount", "take the mount of .env away", "unmount", c=_MOUNTS, arguments={"path": ".env"}),
    _file(
        "device", "make a device", "device", c=(Layer.SECCOMP, Layer.CAPABILITIES), b=(Layer.SECCOMP, Layer.LANDLOCK)
    ),
    _setuid("chmod", "leave a setuid program behind (chmod)"),
    _setuid("fchmod", "leave a setuid program behind (fchmod)"),
    _setuid("fchmodat2", "leave a setuid program behind (fchmodat2)"),
    _setuid("setgid", "leave a setgid program behind (chmod)"),
    _setuid("open", "leave a setuid program behind (open)"),
    _setuid("openat2", "leave a setuid program behind (openat2)"),
    _setuid("memfd", "make a setuid program in memory"),
    _file("capability", "leave a program with capabilities behind", "capability", c=_STRONG, b=_STRONG),
    _file("give_away", "give a file to another user", "give_away", c=_STRONG, b=_STRONG),
    _setuid("mknod", "leave a setuid program behind (mknod)"),
)
