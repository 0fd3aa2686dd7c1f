"""Writes the frozen evaluation sets: 500 items per task, one JSON object a line.

    python make_eval.py --out ../../models/tiny/eval

{"id", "prompt", "answer", "extract", "max_tokens", "stop"} (+ "split", a note for the reader). The completion is correct
if the last match of the regular expression `extract` (group 1) equals `answer`; an empty `extract` compares the whole
completion, stripped of white space at both ends.
"""

import argparse
import json
import os
import random

import chat_format as chat
import documents
import problems

ITEMS = 500
# Beyond this many tokens not even five layers of 128-token windows reach the pair that the query asks for.
MIN_RECALL_DISTANCE_PAIRS = 80


def arithmetic(rng: random.Random):
    for i in range(ITEMS):
        split = "templates" if i % 10 == 9 else "names" if i % 5 == 3 else "numbers"
        question, steps, answer = problems.draw_problem(rng, split)
        yield {"prompt": f"Question: {question}", "answer": str(answer), "extract": "#### (-?[0-9]+)", "max_tokens": 96, "stop": ["\nQuestion:"],
               "split": split, "worked": "\nAnswer: " + problems.worked(steps, answer)}


def recall(rng: random.Random):
    for _ in range(ITEMS):
        pairs = documents.recall_pairs(rng, rng.randint(120, 200), 3)
        key, value = pairs[rng.randrange(0, len(pairs) - MIN_RECALL_DISTANCE_PAIRS)]
        yield {"prompt": f"{documents.recall_text(pairs)}{key}:", "answer": value, "extract": "(v[0-9]+)", "max_tokens": 8, "stop": ["\n"], "worked": f" {value}"}


def copysort(rng: random.Random):
    for _ in range(ITEMS):
        task, out = documents.copysort(rng)
        yield {"prompt": task, "answer": out, "extract": "Output: (.*)", "max_tokens": 128, "stop": ["\n\n"], "worked": f"\nOutput: {out}"}


def toolcall(rng: random.Random):
    for _ in range(ITEMS):
        tools, user, name, arguments, _, _ = documents.toolcall_item(rng)
        call = chat.call_text(name, arguments)
        prompt = chat.system_text(rng.choice(documents.SYSTEMS), tools) + chat.user_text(user) + chat.END_THINK
        yield {"prompt": prompt, "answer": call.strip(), "extract": "", "max_tokens": 96, "stop": [], "worked": call}


TASKS = {"arithmetic": arithmetic, "recall": recall, "copysort": copysort, "toolcall": toolcall}


def items(task: str, seed: int = 20240) -> list[dict]:
    """`worked` is the whole expected completion, for teacher-forced measurements; the files do not carry it."""
    rng = random.Random(f"{seed}-{task}")
    return [{"id": i, **item} for i, item in enumerate(TASKS[task](rng))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for task in TASKS:
        with open(os.path.join(args.out, f"{task}.jsonl"), "w", encoding="utf-8") as f:
            for item in items(task):
                item.pop("worked")
                f.write(json.dumps(item, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
