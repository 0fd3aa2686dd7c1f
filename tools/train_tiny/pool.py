"""Training sequences: worker processes make and tokenise documents, the trainer takes packed batches.

A sequence has seq_len + 2 tokens (targets of the main model and of the MTP layer) and a loss weight per token in tenths.
A document is never cut: what is left of a sequence is filled with plain text. A recall document fills a sequence of its own,
so that no two memories with the same keys are in one context.
"""

import multiprocessing
import os
import random
import time

import numpy as np
import torch

SHARD = 64  # sequences per file
RECALL_SHARE = 0.28
TEXT_WEIGHT = 3
# Share of tokens in packed sequences, by kind of document.
SHARES = {"problem": 0.40, "drill": 0.08, "chat": 0.18, "copysort": 0.14, "toolcall": 0.10, "text": 0.10}
MAX_WAITING_FILES = 400


class SequenceMaker:
    def __init__(self, tokenizer_file: str, text_file: str, seed: str):
        from tokenizers import Tokenizer

        import documents

        self.tokenizer = Tokenizer.from_file(tokenizer_file)
        self.text = np.load(text_file, mmap_mode="r")
        self.rng = random.Random(seed)
        self.documents = documents
        self.makers = {
            "problem": documents.problem_document, "drill": lambda r: documents.problem_document(r, drill=True), "chat": documents.chat_document,
            "copysort": documents.copysort_document, "toolcall": documents.toolcall_document,
        }
        self.used = {kind: 0.0 for kind in SHARES}
        self.ready: dict[str, list] = {kind: [] for kind in self.makers}

    def encode(self, docs: list) -> list[tuple[np.ndarray, np.ndarray]]:
        """Tokens and weights of each document; every segment is tokenised on its own."""
        encoded = iter(self.tokenizer.encode_batch_fast([text for doc in docs for text, _ in doc], add_special_tokens=False))
        result = []
        for doc in docs:
            tokens, weights = [], []
            for _, weight in doc:
                ids = next(encoded).ids
                tokens += ids
                weights += [weight] * len(ids)
            result.append((np.array(tokens, dtype=np.uint16), np.array(weights, dtype=np.uint8)))
        return result

    def text_piece(self, length: int):
        start = self.rng.randrange(len(self.text) - length)
        return np.array(self.text[start : start + length]), np.full(length, TEXT_WEIGHT, dtype=np.uint8)

    def next_document(self, room: int):
        """The kind that is furthest behind its share gives the next document."""
        kind = min(SHARES, key=lambda k: self.used[k] / SHARES[k])
        if kind == "text":
            piece = self.text_piece(min(room, self.rng.randint(64, 256)))
        else:
            if not self.ready[kind]:
                self.ready[kind] = self.encode([self.makers[kind](self.rng) for _ in range(64)])
            piece = self.ready[kind].pop()
        self.used[kind] += len(piece[0])
        return piece

    def sequence(self, length: int):
        pieces, room = [], length
        if self.rng.random() < RECALL_SHARE:
            tokens, weights = self.encode([self.documents.recall_document(self.rng, length)])[0]
            pieces, room = [(tokens[:length], weights[:length])], max(0, length - len(tokens))
        while room > 0:
            piece = self.next_document(room)
            if len(piece[0]) > room:
                piece = self.text_piece(room)
            pieces.append(piece)
            room -= len(piece[0])
        return np.concatenate([t for t, _ in pieces]), np.concatenate([w for _, w in pieces])

    def shard(self, seq_len: int) -> np.ndarray:
        """uint16 [2, SHARD, seq_len + 2]: tokens and weights."""
        out = np.empty((2, SHARD, seq_len + 2), dtype=np.uint16)
        for i in range(SHARD):
            out[0, i], out[1, i] = self.sequence(seq_len + 2)
        return out


def work(folder: str, worker: int, always_long: bool, lengths: tuple[int, int], tokenizer_file: str, text_file: str, seed: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    maker = SequenceMaker(tokenizer_file, text_file, f"{seed}-{worker}")
    parent = os.getppid()
    count = 0
    while os.getppid() == parent:
        long = always_long or os.path.exists(os.path.join(folder, "long"))
        seq_len = lengths[1] if long else lengths[0]
        if sum(n.startswith(f"{seq_len}-") for n in os.listdir(folder)) > MAX_WAITING_FILES:
            time.sleep(0.2)
            continue
        name = f"{seq_len}-{worker}-{count}.npy"
        np.save(os.path.join(folder, "tmp-" + name), maker.shard(seq_len))
        os.rename(os.path.join(folder, "tmp-" + name), os.path.join(folder, name))
        count += 1


class Pool:
    """Batches from the workers' files. When they cannot keep up, earlier sequences are used again, at random."""

    def __init__(self, folder: str, workers: int, lengths: tuple[int, int], tokenizer_file: str, text_file: str, seed: int):
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        self.folder, self.rng = folder, random.Random(seed)
        self.fresh: dict[int, list] = {n: [] for n in lengths}
        self.used: dict[int, list] = {n: [] for n in lengths}
        self.reused = self.taken = 0
        self.last_scan = 0.0
        context = multiprocessing.get_context("spawn")
        self.processes = [
            context.Process(target=work, args=(folder, w, w % 3 == 2 or workers == 1 and lengths[0] == lengths[1], lengths, tokenizer_file, text_file, seed), daemon=True)
            for w in range(workers)
        ]
        for p in self.processes:
            p.start()

    def go_long(self) -> None:
        open(os.path.join(self.folder, "long"), "w").close()

    def scan(self) -> None:
        if time.monotonic() - self.last_scan < 0.5:
            return
        self.last_scan = time.monotonic()
        for name in os.listdir(self.folder):
            if name[0].isdigit():
                path = os.path.join(self.folder, name)
                self.fresh[int(name.split("-")[0])].append(torch.from_numpy(np.load(path).astype(np.int16)))
                os.remove(path)

    def batch(self, sequences: int, seq_len: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens int64 and weights float32, both [sequences, seq_len + 2]."""
        shards = []
        while len(shards) * SHARD < sequences:
            self.scan()
            if self.fresh[seq_len]:
                shards.append(self.fresh[seq_len].pop(0))
                self.used[seq_len].append(shards[-1])
            elif self.used[seq_len]:
                shards.append(self.rng.choice(self.used[seq_len]))
                self.reused += 1
            else:
                if not any(p.is_alive() for p in self.processes):
                    raise RuntimeError("all data workers have died")
                time.sleep(0.1)
                continue
            self.taken += 1
        both = torch.cat(shards, dim=1)[:, :sequences]
        if device != "cpu":
            both = both.pin_memory().to(device, non_blocking=True)
        return both[0].long(), both[1].float() * 0.1

    def close(self) -> None:
        for p in self.processes:
            p.terminate()
