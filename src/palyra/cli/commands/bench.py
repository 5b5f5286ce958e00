"""``palyra bench``: measure Palyra on this machine against peers that run in turn with it.

The benchmarks are in ``benchmarks/`` of the repository, beside the package, and in no wheel.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

import palyra
from palyra.cli.command_table import CommandMissing
from palyra.cli.invocation import Invocation, pass_invocation
from palyra.errors import InvalidInput

if TYPE_CHECKING:
    from benchmarks.sources import Source

RESULTS: Final = "bench-results"


class UnknownBenchmark(InvalidInput):
    code = "bench.unknown"
    hint = "`palyra bench --list` prints the names"


def make_benchmarks_importable(package: Path) -> None:
    """Add the repository that holds the package at ``package`` to the import path."""
    root = package.resolve().parents[1]
    if not (root / "benchmarks" / "runner.py").is_file():
        raise CommandMissing(
            "the benchmarks are in Palyra's repository and not in the installed package",
            hint="run `make bench` in a checkout of the repository, or in its source distribution",
        )
    if str(root) not in sys.path:
        sys.path.append(str(root))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Print the benchmarks and their bars, and run none.")
@click.option("--check", is_flag=True, help="Exit with 1 when a bar was missed or could not be measured.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    show_default=True,
    help="The folder for the table, the JSON and the charts.",
)
@pass_invocation
@click.pass_context
def bench(
    ctx: click.Context, invocation: Invocation, names: tuple[str, ...], only_list: bool, check: bool, results: Path
) -> None:
    """Measure Palyra on this machine, all of it or the benchmarks named.

    Every figure is a ratio to something measured in turn in the same run, with its bar and whether it was met. A peer
    that is not installed is reported as missing. The benchmarks are in Palyra's repository, not in the installed
    package: in a checkout, `make bench` fetches the peers and runs everything.
    """
    make_benchmarks_importable(Path(palyra.__file__).parent)
    from benchmarks.bar import Verdict
    from benchmarks.runner import run_all
    from benchmarks.sources import find_sources

    every = {source.name: source for source in find_sources()}
    for name in names:
        if name not in every:
            raise UnknownBenchmark(f"there is no benchmark {name}; there are {', '.join(every)}")
    sources = [every[name] for name in names or every]
    if only_list:
        invocation.output.data(list(map(_to_document, sources)), lambda _: _print_list(invocation, sources))
        return
    result = run_all(sources, invocation.output.note, results)
    written = result.write(results)
    invocation.output.data(result.document(), lambda _: result.text())
    invocation.output.note("written: " + ", ".join(map(str, written)))
    if check and any(each.verdict is not Verdict.MET for each in result.judged()):
        ctx.exit(1)


def _to_document(source: "Source") -> dict[str, object]:
    return {"name": source.name, "bars": [{"key": bar.key, "bar": bar.words} for bar in source.bars()]}


def _print_list(invocation: Invocation, sources: "list[Source]") -> None:
    lines = []
    for source in sources:
        bars = source.bars()
        lines += [(source.name, bar.what.replace("`", ""), bar.against.replace("`", ""), bar.words) for bar in bars]
        if not bars:
            lines.append((source.name, "for information", "-", "-"))
    invocation.output.table(("benchmark", "what", "against", "bar"), lines)
