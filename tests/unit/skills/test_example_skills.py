"""The skills of `examples/skills`: they build, pass their examples and an audit, and keep to the template."""

import asyncio
import csv
import io
import json
import random
import shutil
from pathlib import Path

import pytest

from fakes.skill_project import Author
from palyra.skills.build.project import Language
from palyra.skills.build.project_files import template
from palyra.skills.build.trial import check_input, check_output, choose_tool, trial_grants
from palyra.skills.build.trial_host import LocalHost
from palyra.skills.package.artifact import SkillArtifact, read_artifact

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"


@pytest.mark.parametrize("name", ["json-csv", "notes", "page-text"])
def test_an_example_skill_works(name, tmp_path):
    author = Author(tmp_path)
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("build"))
    tested = author.data("skill", "test", "--dir", str(folder))
    assert tested["failed"] == 0 and tested["passed"] >= 4, tested
    key = str(tmp_path / "k.key")
    author.data("skill", "keygen", key)
    signed = author.data("skill", "sign", "--dir", str(folder), "--key", key)
    author.data("skill", "trust", "add", "palyra", str(tmp_path / "k.pub"))
    assert author.data("skill", "audit", signed["file"])["findings"] == []


@pytest.mark.parametrize("name", ["json-csv", "notes", "page-text"])
def test_example_skills_use_the_headers_of_the_template(name):
    shipped = template(Language.C)
    for header in ("palyra.h", "json.h"):
        assert (EXAMPLES / name / "src" / header).read_text() == shipped[f"src/{header}.in"]


async def test_json_csv_agrees_with_python_on_odd_tables(tmp_path):
    """Quotes, separators, line ends, other scripts, nothing: what one writes the other reads."""
    from palyra.cli.commands.skills.trial import call, local_runtime

    author = Author(tmp_path)
    shutil.copytree(EXAMPLES / "json-csv", tmp_path / "p", ignore=shutil.ignore_patterns("build"))
    built = await asyncio.to_thread(author.data, "skill", "build", "--dir", str(tmp_path / "p"))
    artifact = read_artifact(Path(built["file"]).read_bytes())
    draw = random.Random(7)
    pieces = ("a", '"', ",", "\n", "\r\n", " ", "é", "😀", "\\", "\t", "\u0001", "}", "]")

    def text() -> str:
        return "".join(draw.choice(pieces) for _ in range(draw.randrange(6)))

    async with local_runtime() as runtime:

        async def ask(tool_id: str, value: object) -> dict:
            return await _requests(runtime, call, artifact, tool_id, value)

        for _ in range(40):
            columns = [f"c{index}" for index in range(draw.randrange(1, 4))]
            rows = [{name: text() for name in columns} for _ in range(draw.randrange(5))]
            written = (await ask("to_csv", {"rows": rows, "columns": columns}))["csv"]
            if len(columns) > 1:
                # A line of one empty cell is an empty line to Python, and a row to us.
                read = list(csv.DictReader(io.StringIO(written, newline="")))
                assert read == rows
            back = await ask("to_json", {"csv": written})
            assert (back["columns"], back["rows"]) == (columns, rows), json.dumps(rows)


async def _requests(runtime, call, artifact: SkillArtifact, tool_id: str, value: object) -> dict:
    tool = choose_tool(artifact.manifest, tool_id)
    asked = artifact.manifest.capabilities
    outcome = await call(
        runtime,
        artifact,
        tool,
        check_input(artifact.manifest, tool, value),
        trial_grants(asked, ()),
        LocalHost(asked),
    )
    return check_output(tool, outcome.output)
