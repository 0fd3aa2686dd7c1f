"""Trains the byte-level BPE tokenizer of models/tiny in the layout of DeepSeek-V3's tokenizer.json.

    python make_tokenizer.py --out ../../models/tiny --text-tokens ../../build/tiny-data/text.npy

The pre-tokenizer patterns, their order and the special strings are V3's; only while training are digits split singly, so
that no merge of digits exists. --text-tokens also writes the tokenised text documents (uint16, each ended by EOS).
"""

import argparse
import json
import os
import random

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import chat_format as chat
import documents
import text_sources

VOCAB_SIZE = 2048
DIGITS = r"\p{N}{1,3}"
CJK = "[一-龥぀-ゟ゠-ヿ]+"
REST = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
HEAD_SPECIALS = [chat.BOS, chat.EOS, chat.PAD]
TAIL_SPECIALS = [
    "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", chat.THINK, chat.END_THINK, chat.USER, chat.ASSISTANT, "<|EOT|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁sep｜>", chat.DSML,
]


def pre_tokenizer(digits: str):
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split(digits), split(CJK), split(REST), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def synthetic_texts(rng: random.Random):
    """Enough of every task that its common words become single tokens."""
    makers = [documents.problem_document] * 6 + [documents.copysort_document] * 2 + [documents.chat_document] * 3
    specials = HEAD_SPECIALS + TAIL_SPECIALS
    for i in range(16000):
        segments = rng.choice(makers)(rng) if i % 40 else documents.toolcall_document(rng)
        text = "".join(t for t, _ in segments)
        for s in specials:
            text = text.replace(s, "\n")
        yield text


def train(texts) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizer(r"\p{N}")
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE - len(TAIL_SPECIALS), special_tokens=HEAD_SPECIALS, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = pre_tokenizer(DIGITS)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_special_tokens([AddedToken(s, normalized=True, special=True) for s in HEAD_SPECIALS])
    # As in V3, turn, thinking and tool strings are not "special": decoding keeps them.
    tokenizer.add_tokens([AddedToken(s, normalized=True, special=False) for s in TAIL_SPECIALS])
    return tokenizer


def check(tokenizer: Tokenizer) -> None:
    vocab = tokenizer.get_vocab()
    assert tokenizer.get_vocab_size() == VOCAB_SIZE and max(vocab.values()) == VOCAB_SIZE - 1
    assert [vocab[s] for s in HEAD_SPECIALS] == [0, 1, 2]
    assert not [t for t in vocab if sum(c.isdigit() and c.isascii() for c in t) > 1], "a merge of digits exists"
    text = chat.BOS + "Tom has 1234 apples.\n\n" + chat.USER + "käse 漢字 かな 🙂 \t x  y" + chat.ASSISTANT + chat.END_THINK + f"<{chat.DSML}invoke>"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert vocab[chat.DSML] in ids and vocab[chat.USER] in ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--text-tokens")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    sources = text_sources.load_all()
    docs = [d for name in sorted(sources) for d in sources[name]]
    rng.shuffle(docs)
    sample = docs[: len(docs) // 3]
    tokenizer = train(list(synthetic_texts(rng)) + sample)
    check(tokenizer)
    os.makedirs(args.out, exist_ok=True)
    tokenizer.save(os.path.join(args.out, "tokenizer.json"), pretty=False)
    config = {
        "add_bos_token": True, "add_eos_token": False, "bos_token": chat.BOS, "eos_token": chat.EOS, "pad_token": chat.PAD, "unk_token": None,
        "clean_up_tokenization_spaces": False, "model_max_length": 2048, "tokenizer_class": "PreTrainedTokenizerFast",
    }
    with open(os.path.join(args.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, ensure_ascii=False, indent=2)
        f.write("\n")
    if args.text_tokens:
        eos = tokenizer.token_to_id(chat.EOS)
        chunks = []
        for enc in tokenizer.encode_batch(docs, add_special_tokens=False):
            chunks += [np.array(enc.ids, dtype=np.uint16), np.array([eos], dtype=np.uint16)]
        tokens = np.concatenate(chunks)
        os.makedirs(os.path.dirname(args.text_tokens) or ".", exist_ok=True)
        np.save(args.text_tokens, tokens)
        print(f"{len(docs)} text documents, {tokens.size} tokens, {tokens.nbytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
