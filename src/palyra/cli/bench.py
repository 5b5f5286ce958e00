"""``palyra bench``: how fast this machine is with Palyra, against peers that are measured in the same run."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation

if TYPE_CHECKING:
    from palyra.bench.sources import Source

RESULTS: Final = "bench-results"


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
@json_option
@pass_invocation
@click.pass_context
def bench(
    ctx: click.Context, invocation: Invocation, names: tuple[str, ...], only_list: bool, check: bool, results: Path
) -> None:
    """Measure Palyra on this machine, all of it or the benchmarks named.

    Every figure is a ratio to something measured in turn in the same run, with its bar and whether it was met. A peer
    that is not installed is reported as missing. An installed package measures what needs nothing else; in a checkout
    `make bench` fetches the peers and runs everything.
    """
    from palyra.bench.bar import Verdict
    from palyra.bench.runner import run_all
    from palyra.bench.sources import checkout, chosen

    sources = chosen(names)
    if only_list:
        invocation.output.data([_listed(source) for source in sources], lambda _: _show_list(invocation, sources))
        return
    if checkout() is None:
        invocation.output.note("No checkout here: only what needs nothing but the package is measured.")
    result = run_all(sources, invocation.output.note, results)
    written = result.write(results)
    invocation.output.data(result.document(), lambda _: result.text())
    invocation.output.note("written: " + ", ".join(map(str, written)))
    if check and any(each.verdict is not Verdict.MET for each in result.judged()):
        ctx.exit(1)


def _listed(source: "Source") -> dict[str, object]:
    return {"name": source.name, "bars": [{"key": bar.key, "bar": bar.words} for bar in source.bars()]}


def _show_list(invocation: Invocation, sources: "list[Source]") -> None:
    lines = []
    for source in sources:
        bars = source.bars()
        lines += [(source.name, bar.what.replace("`", ""), bar.against.replace("`", ""), bar.words) for bar in bars]
        if not bars:
            lines.append((source.name, "for information", "-", "-"))
    invocation.output.table(("benchmark", "what", "against", "bar"), lines)
