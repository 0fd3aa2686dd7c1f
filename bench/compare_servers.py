#!/usr/bin/env python3
"""Servers of the OpenAI API in turns on one machine: start-up time, memory, and what `lantern bench serve` tells.

    bench/compare_servers.py PLAN.json --output RESULT.json

PLAN.json: {"rounds": 3,
            "servers": {NAME: {"command": "...", "url": "http://127.0.0.1:8000", "ready": "/health"}, ...},
            "loads": {NAME: "build/release/lantern bench serve --url {url} ... --json --quiet", ...}}
Every round starts each server anew, one at a time, runs all loads on it and ends it. A command may begin with
NAME=VALUE. The first server is the one that the ratios speak of: above 1 it is the better one, in less time or memory or
more tokens.
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

LOAD_KEYS = {"output_throughput": "tokens_per_s", "median_ttft_ms": "ttft_ms", "median_tpot_ms": "tpot_ms"}
MORE_IS_BETTER = {"tokens_per_s"}


def is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def processes_of(group):
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getpgid(int(folder.name)) == group:
                    yield folder
            except OSError:
                pass  # ended meanwhile


def memory_mib(group):
    """Proportional set size now, which counts pages shared within the group once, and the peaks of resident memory."""
    pss = peak = 0
    for folder in processes_of(group):
        try:
            rollup = (folder / "smaps_rollup").read_text().splitlines()
            status = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        pss += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
        peak += sum(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return pss / 1024, peak / 1024


class Server:
    def __init__(self, name, plan, log):
        self.url = plan["url"]
        ready = self.url + plan.get("ready", "/health")
        if is_ready(ready):
            sys.exit(f"{name}: something answers at {self.url} already")
        begin = time.monotonic()
        self.process = subprocess.Popen(
            ["env", *shlex.split(plan["command"])], stdout=log, stderr=log, start_new_session=True
        )
        try:
            while not is_ready(ready):
                if self.process.poll() is not None or time.monotonic() - begin > 600:
                    sys.exit(f"{name}: does not come up; its output is in {log.name}")
                time.sleep(0.005)
        except BaseException:
            self.stop()
            raise
        self.startup_s = time.monotonic() - begin

    def memory_mib(self):
        return memory_mib(self.process.pid)

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return
            for _ in range(300):
                self.process.poll()
                if not any(processes_of(self.process.pid)):
                    return
                time.sleep(0.1)


def run_load(name, command):
    outcome = subprocess.run(shlex.split(command), capture_output=True, text=True)
    if outcome.returncode != 0:
        sys.exit(f"{name}: {command}: {outcome.stderr.strip()}")
    result = json.loads(outcome.stdout)
    if result["failed"]:
        sys.exit(f"{name}: {command}: {result['failed']} requests failed: {result['failures']}")
    return {ours: result[theirs] for theirs, ours in LOAD_KEYS.items()} | {
        "input_tokens": result["total_input_tokens"],
        "output_tokens": result["total_output_tokens"],
    }


def run_server(name, setting, loads, log):
    server = Server(name, setting, log)
    try:
        run = {"startup_s": server.startup_s, "ready_pss_mib": server.memory_mib()[0], "loads": {}}
        for load, command in loads.items():
            run["loads"][load] = run_load(name, command.replace("{url}", server.url))
            print(name, load, run["loads"][load], file=sys.stderr, flush=True)
        run["pss_mib"], run["peak_rss_mib"] = server.memory_mib()
        return run
    finally:
        server.stop()


def flat(run):
    figures = {key: value for key, value in run.items() if key != "loads"}
    for load, result in run["loads"].items():
        figures |= {f"{load}: {key}": value for key, value in result.items()}
    return figures


def summary(runs):
    """The runs' values of each figure, their medians, and how the first server's median stands to each other's."""
    values = {}
    for name, of_server in runs.items():
        listed = [flat(run) for run in of_server]
        values[name] = {key: [round(figures[key], 3) for figures in listed] for key in listed[0]}
    medians = {name: {key: statistics.median(of) for key, of in figures.items()} for name, figures in values.items()}
    first, *others = medians
    ratios = {}
    for other in others:
        ratios[other] = {}
        for key, ours in medians[first].items():
            if key.endswith("put_tokens"):
                if ours != medians[other][key]:
                    sys.exit(f"{key}: {ours} of {first}, {medians[other][key]} of {other}: not the same work")
                continue
            if not ours or not medians[other][key]:
                continue  # nothing was measured, as between the tokens of answers of one
            ratio = medians[other][key] / ours
            ratios[other][key] = round(1 / ratio if key.split(": ")[-1] in MORE_IS_BETTER else ratio, 2)
    return {"runs": values, "medians": medians, f"{first}_is_better_by": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    plan = json.loads(arguments.plan.read_text())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and so ends the server first
    with open(arguments.output.with_suffix(".log"), "ab") as log:
        runs = {name: [] for name in plan["servers"]}
        for _ in range(plan["rounds"]):
            for name, setting in plan["servers"].items():
                runs[name].append(run_server(name, setting, plan["loads"], log))
            # After each round, so that one cut short keeps those before it.
            arguments.output.write_text(json.dumps({"plan": plan, **summary(runs)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
