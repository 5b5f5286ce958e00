"""Judge what git's own files say: only what makes git run nothing may appear or change during a call.

``git clone``, ``git config user.name`` and ``git worktree add`` write the files that could also name a program. So a
file is judged by its content: every setting that differs has to be one of those that run nothing. What cannot be parsed
as git writes it is refused.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from palyra.sandbox.domain.facts import Names

_HEADER: Final = re.compile(r'\[([A-Za-z0-9-]+)(?:[ \t]+"((?:[^"\\\n]|\\.)*)")?\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=)?[ \t]*")
_BLANK: Final = re.compile(r"(?:[ \t\n]|[#;][^\n]*)*")
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"', "\n": ""}
_UNUSUAL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_POINTER: Final = re.compile(rb"gitdir: ((?:\.\./)*)([^\n]+)\n*")
_SAMPLE: Final = b".sample"


class GitSetting(NamedTuple):
    section: str
    name: str | None
    key: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.section}.{self.key}" if self.name is None else f"{self.section}.{self.name}.{self.key}"


def _keys(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Settings of sections without a name. ``*`` allows every key.
_PLAIN: Final = {
    "user": _keys("name email useconfigonly"),
    "author": _keys("name email"),
    "committer": _keys("name email"),
    "core": _keys(
        "repositoryformatversion filemode bare logallrefupdates ignorecase symlinks precomposeunicode autocrlf eol"
        " safecrlf quotepath abbrev compression sharedrepository whitespace trustctime checkstat preloadindex longpaths"
        " untrackedcache sparsecheckout sparsecheckoutcone commitgraph multipackindex packedgitlimit"
        " packedgitwindowsize deltabasecachelimit bigfilethreshold"
    ),
    "extensions": _keys("worktreeconfig objectformat partialclone refstorage relativeworktrees compatobjectformat"),
    "init": _keys("defaultbranch"),
    "pull": _keys("rebase ff"),
    "push": _keys("default autosetupremote followtags"),
    "fetch": _keys("prune prunetags parallel recursesubmodules writecommitgraph"),
    "merge": _keys("ff conflictstyle renames log stat"),
    "rebase": _keys("autosquash autostash updaterefs stat missingcommitscheck abbreviatecommands rebasemerges"),
    "rerere": _keys("enabled autoupdate"),
    "diff": _keys(
        "algorithm renames renamelimit mnemonicprefix noprefix colormoved context submodule ignoresubmodules"
    ),
    "status": _keys("*"),
    "color": _keys("*"),
    "column": _keys("*"),
    "advice": _keys("*"),
    "commit": _keys("cleanup status verbose gpgsign"),
    "tag": _keys("sort gpgsign"),
    "log": _keys("date decorate abbrevcommit follow"),
    "stash": _keys("*"),
    "checkout": _keys("defaultremote guess workers"),
    "gc": _keys("auto autodetach pruneexpire"),
    "maintenance": _keys("auto strategy"),
    "index": _keys("*"),
    "pack": _keys("threads window depth compression windowmemory packsizelimit deltacachesize"),
    "feature": _keys("*"),
    "http": _keys("postbuffer version lowspeedlimit lowspeedtime maxrequests"),
    "submodule": _keys("active recurse propagatebranches fetchjobs"),
    "lfs": _keys("repositoryformatversion"),
}
_NAMED: Final = {
    # The last ones are notes of editors and of gh, which a person's own tools write at any time.
    "branch": _keys(
        "remote merge rebase pushremote description vscode-merge-base github-pr-owner-number gh-merge-base"
    ),
    "remote": _keys(
        "url pushurl fetch push tagopt prune prunetags mirror promisor partialclonefilter skipfetchall gh-resolved"
    ),
    "submodule": _keys("url path active branch update ignore shallow fetchrecursesubmodules"),
    "color": _keys("*"),
}
_ADDRESSES: Final = _keys("url pushurl remote pushremote")
_UPDATES: Final = _keys("checkout rebase merge none")
# Without them git takes the repository for another one.
_NEEDED: Final = frozenset({("core", "repositoryformatversion"), ("core", "bare")})


def judge_git_file(names: Names, content: bytes | None, before: bytes | None, root: bytes) -> str:
    """Return why a file with a judged name may not stay as it is, empty if it may. Unreadable content is None."""
    last = names[-1].lower()
    if content is None:
        return "cannot be read as a file of git"
    if last == b".git":
        target = target_of_pointer(names, content, root)
        return "" if target else "points out of the repositories of this workspace"
    if last == b"commondir":
        return "" if _is_own_repository(names, content, root) else "points at another directory"
    if last == b"gitdir":
        inside = content.strip().startswith(root + b"/") or content.startswith(b"../")
        return "" if inside and content.strip().endswith(b"/.git") else "points out of this workspace"
    return judge_settings(names, content, before, root)


def judge_hooks(entries: Iterable[tuple[bytes, bool]]) -> str:
    """Judge a folder of hooks by its entries, each with whether it is a regular file. Git never runs a sample."""
    bad = next((name for name, is_file in entries if not (is_file and name.endswith(_SAMPLE))), None)
    return "" if bad is None else "holds a hook that git would run"


def judge_settings(names: Names, content: bytes, before: bytes | None, root: bytes) -> str:
    after, old = parse_settings(content), parse_settings(before or b"")
    if after is None:
        return "is not written as git writes its configuration"
    if old is None:
        return "" if content == before else "changed, and what it was before cannot be compared"
    added, removed = Counter(after) - Counter(old), Counter(old) - Counter(after)
    for setting in (*added, *removed):
        if not _runs_nothing(setting, names, root):
            return f"changes {setting}, which can make git run a program"
    present = {(each.section, each.key) for each in after}
    lost = next((each for each in removed if (each.section, each.key) in _NEEDED - present), None)
    return "" if lost is None else f"lost {lost}"


def _runs_nothing(setting: GitSetting, names: Names, root: bytes) -> bool:
    keys = (_PLAIN if setting.name is None else _NAMED).get(setting.section, frozenset())
    value = (setting.value or "").strip()
    if (setting.section, setting.name, setting.key) == ("core", None, "worktree"):
        return b"modules" in names and _is_inside(names, value, root)
    if names[-1].lower() == b".gitmodules" and setting.section != "submodule":
        return False
    if setting.key not in keys and "*" not in keys:
        return False
    if setting.key in _ADDRESSES:
        return not value.startswith("-") and "::" not in value
    return setting.key != "update" or value in _UPDATES


def _is_inside(names: Names, value: str, root: bytes) -> bool:
    path = posixpath.normpath(b"/".join((root, *names[:-1], value.encode("utf-8", "surrogateescape"))))
    return not value.startswith("/") and path.startswith(root + b"/")


def _is_own_repository(names: Names, content: bytes, root: bytes) -> bool:
    own = b"/".join((root, *names[:-3]))
    return names[-3:-2] == (b"worktrees",) and content.strip() in (b"../..", own)


def target_of_pointer(names: Names, content: bytes, root: bytes) -> Names | None:
    """Return the git directory that a file named ``.git`` points at, if its own settings are judged too."""
    found = _POINTER.fullmatch(content)
    if found is None:
        return None
    ups, rest = found[1].count(b"../"), found[2]
    if rest.startswith(root + b"/") and not ups:
        target = tuple(rest.removeprefix(root + b"/").split(b"/"))
    elif rest.startswith(b"/") or ups >= len(names):
        return None
    else:
        target = (*names[: len(names) - 1 - ups], *rest.split(b"/"))
    if {b"", b".", b".."} & set(target) or b".git" not in target:
        return None
    inner = target[target.index(b".git") + 1 :]
    of_module = inner[:1] == (b"modules",) and len(inner) > 1
    return target if of_module or (inner[:1] == (b"worktrees",) and len(inner) == 2) else None


def parse_settings(content: bytes) -> list[GitSetting] | None:
    """Parse a configuration of git. Return None for what git does not write: it might read that differently."""
    text = content.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    if _UNUSUAL.search(text):
        return None
    found: list[GitSetting] = []
    section, name, place = "", None, 0
    while (place := _skip(_BLANK, text, place)) < len(text):
        if header := _HEADER.match(text, place):
            section, name = header[1].lower(), header[2]
            name = None if name is None else re.sub(r"\\(.)", r"\1", name)
            place = header.end()
            continue
        key = _KEY.match(text, place)
        if key is None or not section:
            return None
        value, place = _read_value(text, key.end()) if key[2] else (None, key.end())
        if place < 0 or (key[2] is None and text[place : place + 1] not in ("", "\n", "#", ";")):
            return None
        found.append(GitSetting(section, name, key[1].lower(), value))
    return found


def _skip(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return place if found is None else found.end()


def _read_value(text: str, place: int) -> tuple[str, int]:
    """Read a value up to its line's end. The place is negative where it cannot be read."""
    out: list[str] = []
    kept = 0
    quoted = False
    while place < len(text):
        char = text[place]
        if char == "\\":
            escaped = _ESCAPES.get(text[place + 1 : place + 2])
            if escaped is None:
                return "", -1
            out.append(escaped)
            kept = len(out)
            place += 2
            continue
        if char == "\n" or (char in "#;" and not quoted):
            break
        place += 1
        if char == '"':
            quoted = not quoted
        else:
            out.append(char)
        if quoted or char not in ' \t"':
            kept = len(out)
    return ("", -1) if quoted else ("".join(out[:kept]), place)
