"""Writes tests/golden/data/logits.json: what transformers' logits processors make of random logits.

Each case has logits (float32, exact in decimal), the text, and the settings by the names of ops/sampling_settings.h.
"processed" are the logits before temperature (null: -infinity), "probabilities" those after every filter, both in
float64. transformers has no presence and frequency penalties; these are judged by the tests' own reference, which
this file anchors.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
import transformers
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 32
DEFAULTS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "logit_bias": [],
    "bad_words": [],
    "stop_token_ids": [],
    "min_tokens": 0,
    "prompt": [5, 9, 5, 2],
    "output": [7, 9, 3],
}
CASES = [
    {},
    {"temperature": 0.5},
    {"repetition_penalty": 1.75},
    {"repetition_penalty": 0.5},
    {"logit_bias": [[4, 2.5], [31, -3.25], [9, 1.0]]},
    {"logit_bias": [[9, 1.0]], "repetition_penalty": 1.5},
    {"bad_words": [[6], [3, 8], [9, 3, 11], [7, 3, 12], [2, 7, 9, 3, 13], [3]]},
    {"bad_words": [[3, 8]], "output": []},
    {"bad_words": [[5, 2, 8], [2, 1]], "output": []},
    {"stop_token_ids": [0, 17], "min_tokens": 4},
    {"stop_token_ids": [0, 17], "min_tokens": 3},
    {"top_k": 5},
    {"top_p": 0.6},
    {"min_p": 0.15},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.8, "min_p": 0.2},
    {
        "temperature": 0.75,
        "top_k": 10,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.25,
        "logit_bias": [[1, 3.0], [2, -1.5]],
        "bad_words": [[9, 3, 1]],
        "stop_token_ids": [0],
        "min_tokens": 9,
    },
]


def processors(case):
    chain = LogitsProcessorList()
    if case["logit_bias"]:
        chain.append(SequenceBiasLogitsProcessor([[[token], bias] for token, bias in case["logit_bias"]]))
    if case["bad_words"]:
        chain.append(NoBadWordsLogitsProcessor(case["bad_words"], eos_token_id=None))
    if case["min_tokens"]:
        chain.append(
            MinNewTokensLengthLogitsProcessor(len(case["prompt"]), case["min_tokens"], case["stop_token_ids"])
        )
    if case["repetition_penalty"] != 1.0:
        chain.append(RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
    return chain


def filters(case):
    chain = LogitsProcessorList()
    if case["temperature"] != 1.0:
        chain.append(TemperatureLogitsWarper(case["temperature"]))
    if case["top_k"]:
        chain.append(TopKLogitsWarper(case["top_k"]))
    if case["top_p"] < 1.0:
        chain.append(TopPLogitsWarper(case["top_p"]))
    if case["min_p"]:
        chain.append(MinPLogitsWarper(case["min_p"]))
    return chain


def make(case, seed):
    case = DEFAULTS | case
    raw = np.random.default_rng(seed).normal(0.0, 2.5, VOCAB).astype(np.float32)
    raw = np.round(raw * 1024) / 1024  # short in decimal, and exact
    ids = torch.tensor([case["prompt"] + case["output"]])
    # Processors of transformers write into their input.
    processed = processors(case)(ids, torch.tensor(raw, dtype=torch.float64)[None].clone())
    filtered = filters(case)(ids, processed.clone())
    return case | {
        "logits": [float(x) for x in raw],
        "processed": [None if x == -np.inf else float(x) for x in processed[0].numpy()],
        "probabilities": [float(x) for x in torch.softmax(filtered[0], dim=-1).numpy()],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--output", type=pathlib.Path, default=root / "tests/golden/data/logits.json")
    args = parser.parse_args()
    cases = [make(case, seed) for seed, case in enumerate(CASES)]
    document = {"transformers": transformers.__version__, "torch": torch.__version__, "cases": cases}
    args.output.write_text(json.dumps(document, separators=(",", ":")).replace('},{"temp', '},\n{"temp') + "\n")


if __name__ == "__main__":
    main()
