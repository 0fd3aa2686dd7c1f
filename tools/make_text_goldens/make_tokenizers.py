"""Trains the small tokenizers of tests/text/tokenizers in the exact layouts of the published ones, and writes goldens.

    python tools/make_text_goldens/make_tokenizers.py tests/text

Made with the versions recorded in tests/text/versions.json. The training text is corpus.py's own sentences and the source
text of Python's standard library (PSF licence), of which only the merges remain.
"""

import base64
import json
import random
import struct
import sys
import sysconfig
from pathlib import Path

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import corpus

V3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
      "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
V2_LETTERS = (
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7d"
    "ᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")
V2 = ["[\r\n]", V2_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+$", "[一-龥ࠀ-一가-\ud7ff]+"]
GLM = [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
# Not of this family: two case shapes of letter words, as in o200k. Goes through PCRE2.
OTHER = [
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

BYTE_LEVEL = dict(add_prefix_space=False, use_regex=False)


def training_text():
    rng = random.Random(1)
    texts = []
    for sentence in corpus.SENTENCES:
        words = sentence.split(" ")
        for _ in range(12):
            i = rng.randrange(len(words))
            texts.append(" ".join(words[i:] + words[:i]))
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    for name in ["argparse.py", "heapq.py", "json/decoder.py", "textwrap.py", "random.py", "string.py", "socket.py"]:
        text = (stdlib / name).read_text("utf-8")
        texts += [text[i:i + 4000] for i in range(0, len(text), 4000)]
    return texts


def isolated(patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def train(steps, specials, vocab_size, ignore_merges=False, normalizer=None):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, special_tokens=specials, min_frequency=2,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(training_text(), trainer)
    return tok


def plain(content):
    return AddedToken(content, special=False, normalized=True)


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def make_v3():
    names = ["begin▁of▁sentence", "end▁of▁sentence", "▁pad▁"]
    tok = train(isolated(V3) + [pre_tokenizers.ByteLevel(**BYTE_LEVEL)], [special(f"<｜{n}｜>") for n in names], 2304,
                normalizer=normalizers.Sequence([]))
    tok.add_tokens([plain(t) for t in ["<think>", "</think>", "<｜User｜>", "<｜Assistant｜>", "<|EOT|>", "<｜tool▁calls▁begin｜>",
                                       "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>",
                                       "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁sep｜>",
                                       "｜DSML｜"]])
    tok.add_special_tokens([special(f"<｜place▁holder▁no▁{i}｜>") for i in range(4)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True)
    return tok, dict(add_bos_token=True, add_eos_token=False, bos_token="<｜begin▁of▁sentence｜>", eos_token="<｜end▁of▁sentence｜>",
                     pad_token="<｜▁pad▁｜>", tokenizer_class="LlamaTokenizerFast")


def make_v2():
    steps = isolated(V2) + [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(**BYTE_LEVEL)]
    tok = train(steps, [special("<｜begin▁of▁sentence｜>"), special("<｜end▁of▁sentence｜>")], 1792,
                normalizer=normalizers.Sequence([]))
    tok.add_tokens([plain("<｜User｜>"), plain("<｜Assistant｜>"), plain("<|EOT|>")])
    return tok, dict(add_bos_token=True, add_eos_token=False,
                     bos_token=dict(content="<｜begin▁of▁sentence｜>", __type="AddedToken"),
                     eos_token=dict(content="<｜end▁of▁sentence｜>", __type="AddedToken"), pad_token=None)


def make_glm():
    tok = train(isolated(GLM) + [pre_tokenizers.ByteLevel(**BYTE_LEVEL)], [], 2048, ignore_merges=True)
    tok.add_special_tokens([special(t) for t in ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>",
                                                 "<|user|>", "<|assistant|>", "<|observation|>"]])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in
                    ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>",
                     "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"]])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True),
        processors.TemplateProcessing(single="[gMASK] <sop> $A", special_tokens=[("[gMASK]", tok.token_to_id("[gMASK]")),
                                                                                  ("<sop>", tok.token_to_id("<sop>"))])])
    return tok, dict(eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def make_gpt2():
    tok = train([pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)], [special("<|endoftext|>")], 1280)
    tok.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", tok.token_to_id("<|endoftext|>"))])
    return tok, dict(bos_token="<|endoftext|>")


def make_other():
    """Every behaviour, literal patterns, an unknown pattern, and every flag of an added token."""
    steps = [pre_tokenizers.Split("---", "merged_with_previous"), pre_tokenizers.Split("=", "merged_with_next"),
             pre_tokenizers.Split(Regex("[\u200b\ufeff]+"), "removed"), pre_tokenizers.Split(Regex(r"\s"), "contiguous"),
             pre_tokenizers.Split(Regex(r"[^_]+"), "contiguous", invert=True)]
    steps += isolated(OTHER) + [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(**BYTE_LEVEL)]
    tok = train(steps, [special("<|endoftext|>")], 1280)
    tok.add_special_tokens([special("<mask>", lstrip=True), special("[R]", rstrip=True), special("[LR]", lstrip=True, rstrip=True),
                            special("<a>"), special("<a><b>"), special("<b>")])
    tok.add_tokens([AddedToken("word", single_word=True, normalized=True), AddedToken("the", normalized=True),
                    AddedToken("é", normalized=False), plain("<think>"), plain("x<a")])
    return tok, {}


def make_random():
    """Merges in an order that no training gives: the same token by several pairs, long ones before short ones."""
    rng = random.Random(2)
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = ["".join(piece for piece, _ in alphabet.pre_tokenize_str(t)) for t in corpus.SENTENCES]
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = {}
    while len(merges) < 4000:
        text = rng.choice(texts)
        size = rng.randint(2, 6)
        if len(text) < size:
            continue
        begin = rng.randrange(len(text) - size + 1)
        cut = begin + rng.randint(1, size - 1)
        left, right = text[begin:cut], text[cut:begin + size]
        if left in vocab and right in vocab:
            vocab.setdefault(left + right, len(vocab))
            merges[left, right] = None
    pairs = list(merges)
    rng.shuffle(pairs)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    tok.pre_tokenizer = pre_tokenizers.Sequence(isolated([r"[^\n]{1,5}"]) + [pre_tokenizers.ByteLevel(**BYTE_LEVEL)])
    tok.decoder = decoders.ByteLevel()
    return tok, {}


GROUP = 8  # strings to a hash; src/text/golden_test.cc has the same


def hash_group(group):
    """FNV-1a in 32 bits over each string's ids, their number before them to part the strings; its halves folded into 16:
    a changed group is missed with a chance of 1 in 65,536."""
    value = 0x811C9DC5
    for byte in b"".join(struct.pack(f"<{1 + len(ids)}i", len(ids), *ids) for ids in group):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value >> 16 ^ value & 0xFFFF


def write_hashes(path, all_ids):
    groups = [all_ids[i:i + GROUP] for i in range(0, len(all_ids), GROUP)]
    path.write_bytes(struct.pack(f"<{len(groups)}H", *map(hash_group, groups)))


def write_goldens(folder, name, modes, texts):
    """modes: name -> function from text to ids."""
    for mode, encode in modes.items():
        all_ids = [encode(text) for text in texts]
        write_hashes(folder / f"{name}.{mode}.hash", all_ids)
        # The first strings in full, to see at a glance what differs.
        with open(folder / f"{name}.{mode}.json", "w", encoding="utf-8") as out:
            json.dump(all_ids[:20], out, separators=(",", ":"))


def write_words(folder, name, pre_tokenizer, texts):
    """Sizes in bytes of the pre-tokens; one character of the byte alphabet is one byte."""
    sizes = [[len(piece) for piece, _ in pre_tokenizer.pre_tokenize_str(text)] for text in texts]
    write_hashes(folder / f"{name}.words.hash", sizes)


def main():
    out = Path(sys.argv[1])
    golden = out / "golden"
    golden.mkdir(parents=True, exist_ok=True)
    fragments = corpus.FRAGMENTS
    (out / "fragments.json").write_text(json.dumps(fragments, ensure_ascii=True, indent=0) + "\n", "utf-8")
    texts = [corpus.make_string(i, fragments).decode("utf-8", "replace") for i in range(corpus.NUM_STRINGS)]

    for name, make in [("v3", make_v3), ("v2", make_v2), ("glm", make_glm), ("gpt2", make_gpt2), ("other", make_other),
                       ("random", make_random)]:
        tok, config = make()
        folder = out / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        document = json.loads(tok.to_str())
        if name == "gpt2":  # the older spelling of merges
            document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
        (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")), "utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", "utf-8")
        full = Tokenizer.from_file(str(folder / "tokenizer.json"))
        not_special = Tokenizer.from_file(str(folder / "tokenizer.json"))
        not_special.encode_special_tokens = True
        document["added_tokens"] = []
        document["post_processor"] = None
        none = Tokenizer.from_str(json.dumps(document))
        modes = {"all": lambda t: full.encode(t, add_special_tokens=False).ids,
                 "none": lambda t: none.encode(t, add_special_tokens=False).ids}
        if name in ("glm", "other"):
            modes["not_special"] = lambda t: not_special.encode(t, add_special_tokens=False).ids
        if name == "random":  # no added tokens: the two modes are one
            modes.pop("none")
            document["model"]["ignore_merges"] = True
            whole = Tokenizer.from_str(json.dumps(document))
            modes["whole"] = lambda t: whole.encode(t, add_special_tokens=False).ids
        write_goldens(golden, name, modes, texts)
        write_words(golden, name, full.pre_tokenizer, texts)
        decoded = [full.decode(full.encode(t, add_special_tokens=False).ids, skip_special_tokens=True) for t in texts]
        write_hashes(golden / f"{name}.decoded.hash", [list(d.encode("utf-8")) for d in decoded])

    # Kimi: the ranks are the ids of a BPE trained with Kimi's pattern, in order of merging.
    tok = train([pre_tokenizers.Split(Regex(KIMI), "isolated"), pre_tokenizers.ByteLevel(**BYTE_LEVEL)], [], 2048)
    alphabet = {}
    kept = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    extra = 0
    for byte in range(256):
        alphabet[chr(byte) if byte in kept else chr(0x100 + extra)] = byte
        extra += byte not in kept
    write_words(golden, "kimi", tok.pre_tokenizer, texts)
    ranks = {}
    for token, _ in sorted(tok.get_vocab().items(), key=lambda item: item[1]):
        ranks[bytes(alphabet[c] for c in token)] = len(ranks)
    folder = out / "tokenizers" / "kimi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiktoken.model").write_text(
        "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()), "ascii")
    base = len(ranks)
    named = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>", 6: "<|start_header_id|>",
             7: "<|end_header_id|>", 9: "[EOT]", 10: "<|im_system|>", 11: "<|tool_calls_section_begin|>",
             12: "<|tool_calls_section_end|>", 13: "<|tool_call_begin|>", 14: "<|tool_call_argument_begin|>",
             15: "<|tool_call_end|>", 17: "<|im_middle|>", 22: "<think>", 23: "</think>", 254: "[UNK]", 255: "[PAD]"}
    entry = dict(lstrip=False, normalized=False, rstrip=False, single_word=False, special=True)
    config = dict(added_tokens_decoder={str(base + i): dict(content=t, **entry) for i, t in named.items()}, bos_token="[BOS]",
                  eos_token="[EOS]", pad_token="[PAD]", tokenizer_class="TikTokenTokenizer")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n", "utf-8")
    specials = {named.get(i, f"<|reserved_token_{base + i}|>"): base + i for i in range(256)}
    encoding = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=specials)
    write_goldens(golden, "kimi", {"all": lambda t: encoding.encode(t, allowed_special="all", disallowed_special=()),
                                   "none": encoding.encode_ordinary}, texts)

    # The tokenizer of the model that ships with the repository is made elsewhere; only its ids are recorded here.
    tiny = Tokenizer.from_file(str(out.parent.parent / "models" / "tiny" / "tokenizer.json"))
    write_goldens(golden, "tiny", {"all": lambda t: tiny.encode(t, add_special_tokens=False).ids}, texts)

    versions = dict(tokenizers=tokenizers.__version__, tiktoken=tiktoken.__version__, python=sys.version.split()[0],
                    strings=len(texts), command="python tools/make_text_goldens/make_tokenizers.py tests/text")
    (out / "versions.json").write_text(json.dumps(versions, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
