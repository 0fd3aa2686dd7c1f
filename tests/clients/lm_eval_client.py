"""lm_eval_client.py URL LANTERN CHECKOUT LIMIT: lm-eval over the server's completions, with texts and with ids, and over its
chats, on the tasks that ship with models/tiny: each item right or wrong as by `lantern eval` on the same prompt, and
log-likelihoods as by `lantern score`."""

import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

url, lantern, checkout = sys.argv[1], os.path.abspath(sys.argv[2]), pathlib.Path(sys.argv[3])
limit = int(sys.argv[4])
scratch = tempfile.TemporaryDirectory()
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=scratch.name)
os.chdir(checkout)  # the tasks name their data from here

import lm_eval  # noqa: E402: it reads the environment
import lm_eval.tasks  # noqa: E402
import yaml  # noqa: E402

TASKS = ["arithmetic", "copysort", "recall", "toolcall"]
FOLDER = "models/tiny/eval/lm_eval"
BEGIN = "<｜begin▁of▁sentence｜>"
logging.getLogger("lm_eval").setLevel(logging.WARNING)
manager = lm_eval.tasks.TaskManager(include_path=FOLDER, include_defaults=False)


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def tokens_prompted():
    metrics = urllib.request.urlopen(url + "/metrics").read().decode()
    return int(re.search(r"^vllm:prompt_tokens_total.* (\d+)$", metrics, re.MULTILINE)[1])


def items(task):
    with open(f"models/tiny/eval/{task}.jsonl") as lines:
        return [json.loads(line) for line in lines][:limit]


def by_lantern(task_items):
    """What is told of each item: correct, completion, prompt_tokens, ..."""
    with tempfile.TemporaryDirectory() as folder:
        task, output = os.path.join(folder, "task.jsonl"), os.path.join(folder, "output.jsonl")
        with open(task, "w") as file:
            file.writelines(json.dumps(item) + "\n" for item in task_items)
        subprocess.run([lantern, "eval", task, "--model", "models/tiny", "--quiet", "--output", output], check=True,
                       stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in open(output)]


def by_lm_eval(model, path, tasks, chat=False, count=limit, **arguments):
    results = lm_eval.simple_evaluate(
        model=model, model_args=dict(model="tiny", base_url=url + path, num_concurrent=4, **arguments), tasks=tasks,
        task_manager=manager, limit=count, apply_chat_template=chat, log_samples=True, bootstrap_iters=0)
    return {task: sorted(samples, key=lambda sample: sample["doc_id"]) for task, samples in results["samples"].items()}


def compare(samples, expected, what):
    """Answers end at stop strings in both; lm-eval may have cut white space off."""
    assert len(samples) == len(expected) > 0, what
    for sample, one in zip(samples, expected):
        made = sample["resps"][0][0]
        assert made.strip() == one["completion"].strip(), (what, sample["doc_id"], made, one)
        assert (sample["exact_match"] == 1) == one["correct"], (what, sample["doc_id"], made)
    print(what, sum(one["correct"] for one in expected), "of", len(expected), "right, as by lantern eval")


def compare_prompts(before, *expected):
    """The prompts were the same, by their number of tokens; a token more or less before each would show."""
    assert tokens_prompted() - before == sum(one["prompt_tokens"] for task in expected for one in task)


def texts_and_ids():
    expected = {task: by_lantern(items(task)) for task in TASKS}
    before = tokens_prompted()
    by_text = by_lm_eval("local-completions", "/v1/completions", [f"tiny_{task}" for task in TASKS],
                         tokenizer_backend="none")
    for task in TASKS:
        compare(by_text[f"tiny_{task}"], expected[task], f"{task} by text")
    compare_prompts(before, *expected.values())
    # The server adds nothing to ids: with `description` they are those of the text.
    with_begin = [{**yaml.safe_load(open(f"{FOLDER}/{task}.yaml")), "description": BEGIN}
                  for task in ["arithmetic", "copysort"]]
    before = tokens_prompted()
    by_ids = by_lm_eval("local-completions", "/v1/completions", with_begin, tokenizer_backend="remote")
    for task in ["arithmetic", "copysort"]:
        compare(by_ids[f"tiny_{task}"], expected[task], f"{task} by ids")
    compare_prompts(before, expected["arithmetic"], expected["copysort"])


def chats():
    task_items = items("arithmetic")
    for item in task_items:
        messages = [{"role": "user", "content": item["prompt"]}]
        item["prompt"] = post("/v1/chat/completions/render", {"messages": messages})["prompts"][0]["prompt"]
        assert item["prompt"].startswith(BEGIN)
        item["extract"] = "The answer is (-?[0-9]+)"  # as arithmetic_chat.yaml
        item["prompt"] = item["prompt"].removeprefix(BEGIN)  # lantern eval puts it there itself
    expected = by_lantern(task_items)
    before = tokens_prompted()
    samples = by_lm_eval("local-chat-completions", "/v1/chat/completions", ["tiny_arithmetic_chat"], chat=True)
    compare(samples["tiny_arithmetic_chat"], expected, "arithmetic as chats")
    compare_prompts(before, expected)
    assert any(one["correct"] for one in expected)


def log_likelihoods():
    count = min(limit, 100)  # 1700 tokens of prompt each
    samples = by_lm_eval("local-completions", "/v1/completions", ["tiny_recall_choice"], count=count,
                         tokenizer_backend="remote")["tiny_recall_choice"]
    assert len(samples) == count
    for sample in samples[:3]:
        for (prompt, continuation), (log_likelihood, greedy) in zip(
                sample["arguments"], [response[0] for response in sample["resps"]]):
            scored = json.loads(subprocess.run(
                [lantern, "score", "--model", "models/tiny", "--no-bos", "--text", prompt + continuation,
                 "--top-logprobs", "1", "--json", "--quiet"], check=True, stdout=subprocess.PIPE).stdout)
            begin = len(post("/tokenize", {"prompt": prompt, "add_special_tokens": False})["tokens"])
            expected = sum(scored["logprobs"][begin:])
            # The same float32 values, summed in the same order; printed with 8 digits.
            assert abs(log_likelihood - expected) < 1e-5 * max(1, abs(expected)), (log_likelihood, expected)
            best = [position[0]["token"] for position in scored["top_logprobs"][begin:]]
            assert greedy == (best == scored["tokens"][begin:]), (sample["doc_id"], continuation)
    assert all(sample["acc"] == 1 for sample in samples)
    print("recall_choice", count, "of", count, "right, log-likelihoods as by lantern score")


for step in [texts_and_ids, chats, log_likelihoods]:
    step()
