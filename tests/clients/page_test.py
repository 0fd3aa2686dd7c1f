"""page_test.py URL PAGE REQUIREMENTS LANTERN: does what a page of docs/clients says, and expects what it shows.

Of the page's fenced blocks
  sh      is run by bash, from a folder in which models/, docs/ and tests/ are those of the checkout. Lines that install
          packages must agree with REQUIREMENTS, which is what is installed here; the line that starts the server is not
          run again, since it has given the flags of the server at URL.
  python  is run by the interpreter that runs this.
  text    is what the block before it must have printed, where ... stands for anything.
  others  are written to the file that their first line names in a comment.
127.0.0.1:8000 is replaced by the server's address, 127.0.0.1:9090 by one that is free; nothing else is changed.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

url, page, requirements, lantern = sys.argv[1:]
checkout = pathlib.Path(page).resolve().parents[2]
address = url.removeprefix("http://")


def free_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def blocks(text):
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def check_pins(command):
    """Each package of a line `pip install ...` is pinned as in the requirements."""
    def pin(text):
        name, version = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.]+)", text).groups()
        return re.sub(r"[-_.]+", "-", name).lower(), version
    installed = {pin(line) for line in pathlib.Path(requirements).read_text().split()}
    for package in command.removeprefix("pip install ").replace('"', "").split():
        assert pin(package) in installed, f"{page} installs {package}, the test does not"


def run_lines(source):
    """The lines of a block of bash that are run here."""
    kept = []
    for line in source.splitlines():
        if line.startswith("pip install "):
            check_pins(line)
        elif not line.startswith("lantern serve "):
            kept.append(line)
    return "\n".join(kept)


def check_output(expected, printed):
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("..."))
    assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"{page} shows\n{expected}\nbut this came:\n{printed}"


def run(kind, source, folder, environment):
    command = ["bash", "-euo", "pipefail", "-c", run_lines(source)] if kind == "sh" else [sys.executable, "-c", source]
    # Nothing that a block leaves in the background outlives it.
    with tempfile.TemporaryFile("w+") as output:
        block = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, start_new_session=True)
        try:
            code = block.wait(timeout=500)
        finally:
            try:
                os.killpg(block.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        output.seek(0)
        printed = output.read()
    assert code == 0, f"{page}: exit code {code} of\n{source}\n{printed}"
    return printed


def main(folder):
    for name in ["models", "docs", "tests"]:
        (folder / name).symlink_to(checkout / name)
    (folder / "bin").mkdir()
    (folder / "bin" / "lantern").symlink_to(os.path.abspath(lantern))
    path = [str(folder / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]]
    environment = {**os.environ, "PATH": ":".join(path), "HOME": str(folder)}  # nothing is left in a real home
    addresses = {"127.0.0.1:8000": address, "127.0.0.1:9090": free_address()}
    printed, compared = None, 0
    for kind, source in blocks(pathlib.Path(page).read_text()):
        for shown, used in addresses.items():
            source = source.replace(shown, used)
        if kind == "text":
            assert printed is not None, f"{page} shows output of nothing"
            check_output(source, printed)
            printed, compared = None, compared + 1
        elif kind in ("sh", "python"):
            printed = run(kind, source, folder, environment)
        else:
            name = re.match(r"(?:#|//) (\S+)\n", source)
            assert name, f"{page}: a block of {kind} names no file"
            (folder / name[1]).write_text(source)
    assert compared, f"{page} shows no output"
    print(compared, "outputs as", os.path.basename(page), "shows them")


with tempfile.TemporaryDirectory() as temporary:
    main(pathlib.Path(temporary))
