"""One program that runs others, as data, and what its entry finds in a command line.

A use that runs nothing (``git status``, ``tar -xzf a.tgz``, ``find . -name x``) is no finding. Where the reading of an
argument is in doubt, the reading that runs a program counts; nothing stops at ``--``, because ``--`` may itself be the
value of an option.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

ASKS_FOR_HELP: Final = (("--version",), ("--help",), ("-V",), ("-version",))


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``position`` is the argument that gives it away, counted from 0; None is the program itself or its input."""

    program: str
    why: str
    position: int | None = None


class ExecRule(msgspec.Struct, frozen=True, kw_only=True):
    """How one program runs others.

    ``flags`` are written as they are typed. ``--long`` is also found abbreviated; ``-x`` also inside ``-axb`` where
    ``clusters``; ``-word`` only whole. After ``=`` comes a pattern that the option's value must begin with.
    ``valued`` are the short options whose value is the rest of the word, so that no option hides behind them.
    ``subcommands``, where given, are the only first words that run nothing. ``text`` is looked for in every argument,
    and in the input where ``reads_input``.
    """

    names: tuple[str, ...]
    why: str
    always: bool = False
    flags: tuple[str, ...] = ()
    valued: str = ""
    clusters: bool = True
    harmless: tuple[str, ...] = ()
    subcommands: frozenset[str] | None = None
    text: str = ""
    reads_input: bool = False
    unless: str = ""
    judge: Callable[[tuple[str, ...]], Finding | None] | None = None


def apply_rule(rule: ExecRule, name: str, args: tuple[str, ...], stdin: bytes | None) -> Finding | None:
    if args in ASKS_FOR_HELP or (rule.unless and rule.unless in args):
        return None
    if rule.always:
        return Finding(program=name, why=rule.why, position=0 if args else None)
    if rule.judge is not None and (found := rule.judge(args)):
        return found
    for position, word in enumerate(args):
        following = args[position + 1] if position + 1 < len(args) else ""
        if any(_is_flag(rule, flag, word, following) for flag in rule.flags):
            return Finding(program=name, why=rule.why, position=position)
    if rule.subcommands is not None:
        first = next((index for index, word in enumerate(args) if not word.startswith("-")), None)
        if first is not None and args[first] not in rule.subcommands:
            return Finding(program=name, why=rule.why, position=first)
    if rule.text:
        return _text_finding(rule, name, args, stdin)
    return None


def _text_finding(rule: ExecRule, name: str, args: tuple[str, ...], stdin: bytes | None) -> Finding | None:
    pattern = re.compile(rule.text, re.IGNORECASE | re.MULTILINE)
    for position, word in enumerate(args):
        if pattern.search(word):
            return Finding(program=name, why=rule.why, position=position)
    if rule.reads_input and stdin is None:
        return Finding(program=name, why=f"{rule.why} (its input is not known before it runs)")
    if rule.reads_input and stdin is not None and pattern.search(stdin.decode("utf-8", "surrogateescape")):
        return Finding(program=name, why=f"{rule.why} (its input asks for it)")
    return None


def _is_flag(rule: ExecRule, flag: str, word: str, following: str) -> bool:
    option, _, wanted = flag.partition("=")
    return any(
        re.match(wanted, value.strip(), re.IGNORECASE) is not None for value in _values(rule, option, word, following)
    )


def _values(rule: ExecRule, option: str, word: str, following: str) -> Iterator[str]:
    """Yield the values of an option if this word may be it."""
    name, equals, value = word.partition("=")
    if option.startswith("--"):
        abbreviated = len(name) > len("--") and option.startswith(name) and name not in rule.harmless
        if abbreviated and word.startswith("--"):
            yield value if equals else following
        return
    if len(option) > len("-x"):
        if name in (option, "-" + option):
            yield value if equals else following
        return
    if not word.startswith("-") or word.startswith("--"):
        return
    for index, letter in enumerate(word[1:], start=1):
        if letter == option[1]:
            yield word[index + 1 :].removeprefix("=") or following
            return
        if not rule.clusters or letter in rule.valued:
            return


# git runs programs through configuration on the command line, a few options, a few subcommands, and aliases.
#
# Hooks and the repository's own configuration are not judged here: the sandbox keeps programs from writing them.

# Configuration that names no program. Anything else on the command line is refused: git has dozens of settings that
# hold a command, and every release adds some.
_HARMLESS_KEYS: Final = (
    r"(user\.(name|email|useconfigonly|signingkey)|author\.(name|email)|committer\.(name|email)|color\..*|advice\..*|"
    r"column\..*|init\.defaultbranch|safe\.directory|commit\.(gpgsign|verbose|cleanup)|tag\.(gpgsign|sort)|"
    r"core\.(autocrlf|eol|safecrlf|quotepath|filemode|symlinks|ignorecase|precomposeunicode|abbrev|compression|"
    r"bare|logallrefupdates|whitespace|longpaths|protectntfs|protecthfs|untrackedcache|preloadindex|commentchar)|"
    r"diff\.(algorithm|renames|renamelimit|context|noprefix|mnemonicprefix|submodule|colormoved|colormovedws|"
    r"statgraphwidth|wserrorhighlight|interhunkcontext)|merge\.(conflictstyle|ff|renames|renamelimit|stat)|"
    r"pull\.(rebase|ff)|push\.(default|autosetupremote|followtags)|fetch\.(prune|prunetags|parallel|fsckobjects)|"
    r"branch\..*\.(remote|merge|rebase|description)|branch\.(sort|autosetupmerge|autosetuprebase)|log\..*|status\..*|"
    r"blame\..*|grep\.(linenumber|column|patterntype|extendedregexp|fullname|threads)|rebase\.(autosquash|autostash|"
    r"stat|updaterefs)|rerere\.(enabled|autoupdate)|gc\..*|pack\..*|index\..*|feature\..*|protocol\.version|"
    r"remote\..*\.(url|fetch|push|pushurl|tagopt|prune|mirror|skipdefaultupdate)|submodule\.(recurse|fetchjobs)|"
    r"transfer\.(fsckobjects|hiderefs)|receive\.(denycurrentbranch|fsckobjects)|http\.(postbuffer|version|useragent|"
    r"lowspeedlimit|lowspeedtime|followredirects|sslverify)|i18n\..*|format\.(pretty|signoff|numbered)|stash\..*|help\.autocorrect)"
)
# Settings that hold a program, with the values that run none worth naming.
_HARMLESS_VALUES: Final = {
    "core.pager": ("", "cat"),
    "core.editor": ("true", ":"),
    "sequence.editor": ("true", ":"),
    "core.fsmonitor": ("false", "0", "no", "off", ""),
    "core.hookspath": ("/dev/null",),
    "credential.helper": ("",),
    "diff.external": ("",),
    "core.askpass": ("", "true"),
}
_SUBCOMMANDS_WORDS: Final = """
    add write-tree am annotate apply archive worktree blame branch bugreport bundle cat-file check-attr
    check-ignore check-mailmap check-ref-format checkout whatchanged checkout-index cherry cherry-pick clean
    clone column commit commit-graph commit-tree config count-objects version describe diagnose diff diff-files
    diff-index diff-tree verify-tag verify-pack fast-export fast-import fetch fetch-pack fmt-merge-msg
    for-each-ref format-patch fsck fsck-objects verify-commit gc get-tar-commit-id grep hash-object help
    index-pack init init-db interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit maintenance
    merge merge-base merge-file merge-ours merge-recursive merge-tree mktag mktree multi-pack-index mv name-rev
    notes pack-objects pack-redundant pack-refs patch-id pickaxe prune prune-packed pull push range-diff
    read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list rev-parse revert rm
    send-pack var shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace
    submodule switch symbolic-ref tag unpack-file unpack-objects update-index update-ref update-server-info
    bisect lfs replay refs backfill
"""
_SUBCOMMANDS: Final = frozenset(_SUBCOMMANDS_WORDS.split())
_GLOBAL_WITH_VALUE: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix"})
_GLOBAL_WITH_EQUALS: Final = ("--git-dir", "--work-tree", "--namespace", "--list-cmds", "--attr-source")
_GLOBAL_FLAGS_WORDS: Final = """
    -p --paginate -P --no-pager --no-replace-objects --bare --literal-pathspecs --glob-pathspecs
    --noglob-pathspecs --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice --version -v --help -h
    --exec-path --html-path --man-path --info-path
"""
_GLOBAL_FLAGS: Final = frozenset(_GLOBAL_FLAGS_WORDS.split())
# Options of subcommands. git takes any unambiguous beginning of a long option.
_LONG: Final = {
    "--upload-pack": None,
    "--receive-pack": None,
    "--exec": None,
    "--open-files-in-pager": ("grep",),
    "--ext-diff": None,
    "--extcmd": None,
    "--template": ("clone", "init", "init-db"),
    "--config": ("clone",),
    "--web": ("help",),
    "--trailer-command": None,
    "--sendmail-cmd": None,
}
_SHORT: Final = {"clone": "uc", "rebase": "x", "grep": "O", "help": "w"}
_SECOND_WORDS: Final = {"submodule": "foreach", "bisect": "run"}
_CONFIG_FLAGS_WORDS: Final = """
    --global --local --system --worktree --add --replace-all --append --all --bool --int --bool-or-int --path
    --fixed-value -z --null set
"""
_CONFIG_FLAGS: Final = frozenset(_CONFIG_FLAGS_WORDS.split())
_CONFIG_READS_WORDS: Final = "--get --get-all --get-regexp --get-urlmatch --list -l --unset --unset-all get list unset"
_CONFIG_READS: Final = frozenset(_CONFIG_READS_WORDS.split())
_EXT_URL: Final = re.compile(r"(^|=|\s)(ext|fd)::", re.IGNORECASE)


def judge_git(args: tuple[str, ...]) -> Finding | None:
    subcommand, found = _global_options(args)
    if found is not None or subcommand is None:
        return found
    name, rest = args[subcommand], args[subcommand + 1 :]
    if name not in _SUBCOMMANDS:
        return _finding(subcommand, f"git {name} runs other programs, or may be an alias that does")
    for offset, word in enumerate(rest):
        if _EXT_URL.search(word):
            return _finding(subcommand + 1 + offset, "a remote of the form ext:: is a command line")
        if why := _option(name, word, rest[offset + 1] if offset + 1 < len(rest) else ""):
            return _finding(subcommand + 1 + offset, why)
    if name in _SECOND_WORDS and _SECOND_WORDS[name] in rest:
        return _finding(
            subcommand + 1 + rest.index(_SECOND_WORDS[name]), f"git {name} {_SECOND_WORDS[name]} runs a program"
        )
    return _config(subcommand, rest) if name == "config" else None


def _finding(position: int, why: str) -> Finding:
    return Finding(program="git", why=why, position=position)


def _global_options(args: tuple[str, ...]) -> tuple[int | None, Finding | None]:
    """Find the subcommand, or a word before it that is refused."""
    position = 0
    while position < len(args):
        word = args[position]
        if not word.startswith("-"):
            return position, None
        name = word.partition("=")[0]
        following = args[position + 1] if position + 1 < len(args) else ""
        if word == "-c":
            if not _is_harmless(following):
                return None, _finding(position + 1, "this setting can hold a program for git to run")
            position += 2
        elif word in _GLOBAL_WITH_VALUE:
            position += 2
        elif word in _GLOBAL_FLAGS or name in _GLOBAL_WITH_EQUALS:
            position += 1
        else:
            return None, _finding(position, f"git {name} decides which programs git runs")
    return None, None


def _is_harmless(setting: str) -> bool:
    key, equals, value = setting.partition("=")
    key = key.lower()
    if key in _HARMLESS_VALUES:
        return bool(equals) and value.strip() in _HARMLESS_VALUES[key]
    return re.fullmatch(_HARMLESS_KEYS, key) is not None and not _EXT_URL.search(value)


def _option(subcommand: str, word: str, following: str) -> str:
    if word.startswith("--"):
        name, _, value = word.partition("=")
        for option, only in _LONG.items():
            begins = len(name) > len("--") and option.startswith(name)
            if begins and (only is None or subcommand in only):
                if option == "--config" and _is_harmless(value or following):
                    continue
                return f"{option} names a program for git to run"
        return ""
    if not word.startswith("-"):
        return ""
    for letter in _SHORT.get(subcommand, ""):
        if letter in word[1:] and not (subcommand == "clone" and letter == "c" and _is_harmless(word[2:] or following)):
            return f"git {subcommand} -{letter} names a program for git to run"
    return ""


def _config(subcommand: int, rest: tuple[str, ...]) -> Finding | None:
    """Judge ``git config KEY VALUE``, which stores a program for a later ``git KEY``. Reading a key is allowed."""
    words = list(enumerate(rest, start=subcommand + 1))
    if editor := next((position for position, word in words if word in ("--edit", "-e", "edit")), None):
        return _finding(editor, "git config --edit runs an editor")
    while words and words[0][1] in _CONFIG_FLAGS:
        words.pop(0)
    if not words or words[0][1] in _CONFIG_READS or len(words) == 1:
        return None
    # Options that take a value would move the key; none of them is needed to set one.
    for position, word in words:
        if word.startswith("-") and word not in _CONFIG_FLAGS:
            return _finding(position, "git config can store a program for git to run")
    (position, key), *values = [(position, word) for position, word in words if word not in _CONFIG_FLAGS]
    if not values or all(_is_harmless(f"{key}={value}") for _, value in values):
        return None
    return _finding(position, "this setting can hold a program for git to run")
