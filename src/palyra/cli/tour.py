"""``palyra tour``: what Palyra does, shown with real calls in a place of its own that is removed afterwards."""

from typing import TYPE_CHECKING

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.cli.tour_scene import Steps


@click.command()
@json_option
@pass_invocation
def tour(invocation: Invocation) -> None:
    """Walk through what Palyra does, with real calls in every tier.

    Starts a daemon with a worker and a browser in a temporary folder: your settings, approvals and journal are not
    touched, and nothing is reached but a small web server of the tour's own on this machine.
    """
    import tempfile
    from pathlib import Path

    from palyra.cli.tour_scene import Steps

    with tempfile.TemporaryDirectory(prefix="palyra-tour-") as folder:
        steps = Steps(invocation.output)
        _walk(steps, Path(folder))
        invocation.output.data({"steps": steps.taken}, lambda _: f"{len(steps.taken)} steps, each as it must be.")


def _walk(steps: "Steps", folder: "Path") -> None:
    from palyra.cli import tour_calls, tour_record, tour_tiers
    from palyra.cli.tour_scene import touring

    with touring(folder, steps) as scene:
        tour_calls.plain_call(scene)
        tour_calls.approval(scene)
        tour_calls.confinement(scene)
        tour_calls.budget(scene)
        tour_calls.denial(scene)
        tour_tiers.skill(scene)
        tour_tiers.programs(scene)
        tour_tiers.network(scene)
        tour_tiers.worker(scene)
        tour_tiers.browser(scene)
    tour_record.journal(steps, scene.state)
