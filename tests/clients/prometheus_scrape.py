"""Prometheus scrapes the server, and answers every query of the Grafana dashboard from what it has found there; promtool
finds nothing wrong with the names and the text but what is vLLM's: the colon, and a histogram's name."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

url, dashboard = sys.argv[1:]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request).read()


def api(base, path, **parameters):
    try:
        with urllib.request.urlopen(f"{base}/api/v1/{path}?" + urllib.parse.urlencode(parameters)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def wait_for(what, condition, seconds=60):
    end = time.time() + seconds
    while True:
        try:
            found = condition()
            if found:
                return found
        except urllib.error.URLError:
            pass  # it has not begun to listen
        assert time.time() < end, f"no {what} in {seconds} s"
        time.sleep(0.1)


def lint():
    with urllib.request.urlopen(url + "/metrics") as answer:
        text = answer.read().decode()
    told = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
    theirs = ("should not contain ':'", 'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix')
    faults = [line for line in (told.stdout + told.stderr).splitlines() if not any(name in line for name in theirs)]
    assert told.returncode in (0, 3) and not faults, (told.returncode, faults)


def queries():
    for panel in json.load(open(dashboard))["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def check(base):
    def target():
        found = api(base, "targets")["data"]["activeTargets"]
        return found and found[0]["health"] != "unknown" and found[0]

    scraped = wait_for("scrape", target)
    assert scraped["health"] == "up", scraped["lastError"]
    samples = api(base, "query", query="scrape_samples_scraped")["data"]["result"][0]["value"][1]
    assert int(samples) > 200, samples
    # Rates take two scrapes with requests between them.
    for stream in [False, True, False]:
        post("/v1/completions", {"prompt": "Question: What is 6 times 7?", "max_tokens": 30, "stream": stream})
        time.sleep(1.1)
    made = wait_for("tokens", lambda: api(base, "query", query="increase(vllm:generation_tokens_total[1m]) > 0")["data"]["result"])
    assert made[0]["metric"]["model_name"] == "tiny", made
    kinds = api(base, "metadata")["data"]
    assert kinds["vllm:time_to_first_token_seconds"][0]["type"] == "histogram"
    assert kinds["vllm:generation_tokens_total"][0]["type"] == "counter"
    assert kinds["lantern:kv_blocks"][0]["type"] == "gauge"
    count = 0
    for title, expr in queries():
        expr = expr.replace("$model", ".*").replace("$__rate_interval", "1m")
        answer = api(base, "query", query=expr)
        assert answer["status"] == "success", (title, expr, answer)
        assert answer["data"]["result"], (title, expr, "found nothing")
        count += 1
    lint()
    print(samples, "samples and", count, "queries ok")


for program in ["prometheus", "promtool"]:
    if not shutil.which(program):
        print(f"skipped: there is no {program}; ./test fetches Debian's package where it can", file=sys.stderr)
        sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    port = free_port()
    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w") as file:
        file.write("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: lantern\n  static_configs:\n")
        file.write(f"  - targets: ['{re.sub('^http://', '', url)}']\n")
    server = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"])
    try:
        check(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()
