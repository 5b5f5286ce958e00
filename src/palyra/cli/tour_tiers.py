"""The tour through the places where calls run: WASM, limited and isolated processes, a worker, a browser."""

from palyra.cli.tour_scene import AGENT, HOST, TourScene
from palyra.tools.receipt_sizes import in_sizes


def skill(scene: TourScene) -> None:
    """Written, signed, installed and approved with the commands that a plugin's author and an operator use."""
    palyra = scene.palyra
    palyra("skill", "new", "hello", "--lang", "wat")
    palyra("skill", "build", "hello")
    palyra("skill", "keygen", "publisher.key")
    archive = palyra("skill", "sign", "hello", "--key", "publisher.key")["file"]
    palyra("skill", "trust", "add", "local", "publisher.pub")
    digest = palyra("skill", "install", archive)["digest"]
    code = scene.refusal(lambda: scene.call("skill.hello.echo", {"name": "Ada"}))
    scene.steps.note("a skill is installed and not yet approved", "refused", code)
    palyra("skill", "approve", "hello", "0.1.0", "--digest", digest)
    made = scene.call("skill.hello.echo", {"name": "Ada"})
    used = in_sizes("wasm", next(line["got"] for line in made.receipt or () if line["layer"] == "wasm"))
    scene.steps.note("approved, it runs in WASM (Tier A)", "allowed", used)


def programs(scene: TourScene) -> None:
    (scene.workspace / "greeting.txt").write_text("hello from the workspace\n")
    read = {"command": "cat", "args": ["greeting.txt"]}
    made = scene.approved("process.run", read)
    scene.steps.expect(made.result["stdout"] == "hello from the workspace\n", "a program reads the workspace")
    held = sum(line["held"] for line in made.receipt or ())
    scene.steps.note(
        "a program reads its workspace, isolated (Tier C)", "allowed", f"{made.result['backend']}, {held} layers held"
    )
    options = ("--tier", "b", "--egress", "preflight", "--workspace", str(scene.workspace))
    limited = scene.palyra("run", *options, "--", "cat", "greeting.txt")
    scene.steps.expect(limited["stdout"] == "hello from the workspace\n", "a limited program reads the workspace")
    scene.steps.note("the same as a limited process (Tier B)", "allowed", f"{limited['backend']}, no daemon needed")
    code = scene.refusal(lambda: scene.approved("process.run", {"command": "cat", "args": ["/etc/shadow"]}))
    scene.steps.note("a program is pointed at a file outside", "refused", code)
    code = scene.refusal(lambda: scene.approved("process.run", {"command": "bash", "args": ["-c", "id"]}))
    scene.steps.note("the agent asks for a shell", "refused", code)


def network(scene: TourScene) -> None:
    allowed = f"{HOST}:{scene.port}"
    fetch = ["-sS", "--max-time", "20", f"http://{allowed}/"]
    made = scene.approved("process.run", {"command": "curl", "args": fetch})
    scene.steps.expect("Orders" in made.result["stdout"], "an allowed host is reached")
    scene.steps.note("curl in the sandbox reaches an allowed host", "allowed", f"{allowed}, through the egress proxy")
    elsewhere = ["-sS", "--max-time", "20", "http://elsewhere.test/"]
    code = scene.refusal(lambda: scene.approved("process.run", {"command": "curl", "args": elsewhere}))
    scene.steps.note("and is pointed at another", "refused", code)


def worker(scene: TourScene) -> None:
    made = scene.once_there(lambda: scene.call("echo", {"text": "from the worker"}, tier="worker"))
    scene.steps.expect(made.result == {"text": "from the worker"}, "the worker answers")
    lease = (made.receipt or [{}])[0]
    scene.steps.note("a call is leased to an attested worker", "allowed", str(lease.get("got", "")))


def browser(scene: TourScene) -> None:
    """A session belongs to its run: another run of the same agent does not see it."""
    host, run_id = f"{HOST}:{scene.port}", scene.client.start_run(principal=AGENT).run_id
    opened = scene.once_there(
        lambda: scene.approved("browser.open", {"hosts": [host], "url": f"http://{host}/"}, run_id=run_id)
    )
    session = {"session": opened.result["session"]}
    seen = scene.approved("browser.snapshot", session, run_id=run_id).result
    scene.steps.expect("Orders" in seen["text"], "the page's heading is seen")
    scene.steps.note("a page in a guarded browser", "allowed", f"{host}, in a session of its own")
    elsewhere = {**session, "url": "http://elsewhere.test/"}
    code = scene.refusal(lambda: scene.approved("browser.navigate", elsewhere, run_id=run_id))
    scene.steps.note("the browser is pointed elsewhere", "refused", code)
    scene.approved("browser.close", session, run_id=run_id)
