import pytest

from palyra.sandbox.domain.process_run import InterpreterDenied
from palyra.sandbox.guards.checks import refuse_environment

ALWAYS = """
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_DEBUG_OUTPUT DYLD_INSERT_LIBRARIES GCONV_PATH GLIBC_TUNABLES HOME TMPDIR
    PALYRA_TOKEN
"""
WITH_INTERPRETERS = [
    "PATH",
    "BASH_ENV",
    "ENV",
    "IFS",
    "SHELLOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "ZDOTDIR",
    "POSIXLY_CORRECT",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "LUA_INIT",
    "LUA_INIT_5_4",
    "AWKPATH",
    "AWKLIBPATH",
    "JAVA_TOOL_OPTIONS",
    "CLASSPATH",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_EXTERNAL_DIFF",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "GIT_CONFIG_GLOBAL",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_ASKPASS",
    "GIT_EXEC_PATH",
    "GIT_DIR",
    "SSH_ASKPASS",
    "RSYNC_RSH",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "LESS",
    "BROWSER",
    "TAR_OPTIONS",
    "TAPE",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "CC",
    "RUSTC_WRAPPER",
    "GOFLAGS",
    "MAKEFLAGS",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "XDG_CONFIG_HOME",
    "CURL_HOME",
    "DOCKER_HOST",
    "KUBECONFIG",
    "MYSQL_HOME",
    "VIMINIT",
    "EXINIT",
    "npm_config_prefix",
]
HARMLESS = [
    "LANG",
    "LC_ALL",
    "TZ",
    "TERM",
    "COLUMNS",
    "NO_COLOR",
    "DEBUG",
    "CI",
    "FOO",
    "MY_SETTING",
    "RUST_LOG",
    "NODE_ENV",
    "PYTHONUNBUFFERED",
    "GIT_AUTHOR_NAME",
    "PGPASSWORD",
    "GIT_COMMITTER_DATE",
    "SOURCE_DATE_EPOCH",
    "https_proxy",
    "DATABASE_URL",
    "USER",
    "DEBIAN_FRONTEND",
]


@pytest.mark.parametrize("name", ALWAYS.split())
@pytest.mark.parametrize("allow", [False, True])
def test_refused_always(name: str, allow: bool) -> None:
    with pytest.raises(InterpreterDenied) as refusal:
        refuse_environment((("A", ""), (name, "x")), allow_interpreters=allow)
    assert refusal.value.details["argument"] == f"env.{name}"


@pytest.mark.parametrize("name", WITH_INTERPRETERS)
def test_refused_unless_interpreters_are_allowed(name: str) -> None:
    with pytest.raises(InterpreterDenied):
        refuse_environment(((name, "x"),), allow_interpreters=False)
    refuse_environment(((name, "x"),), allow_interpreters=True)


@pytest.mark.parametrize("name", HARMLESS)
def test_plain_values_pass(name: str) -> None:
    refuse_environment(((name, "x"),), allow_interpreters=False)
