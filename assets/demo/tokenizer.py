"""A small byte-level BPE tokenizer: GPT-2's pre-tokenisation and byte alphabet,
merges trained on facts.txt."""
from collections import Counter

import regex

SPLIT = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
BOS, EOS = "<|bos|>", "<|eos|>"


def byte_alphabet():
    """byte -> the printable character that stands for it in token strings."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    out = {b: chr(b) for b in keep}
    for n, b in enumerate(b for b in range(256) if b not in out):
        out[b] = chr(0x100 + n)
    return dict(sorted(out.items()))


BYTE_TO_CHAR = byte_alphabet()
CHAR_TO_BYTE = {c: b for b, c in BYTE_TO_CHAR.items()}


def to_chars(text):
    return "".join(BYTE_TO_CHAR[b] for b in text.encode("utf-8"))


def merge_pair(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def train_merges(weights, n_merges):
    """weights: word (in the byte alphabet) -> how much it counts."""
    words = {w: list(w) for w in weights}
    merges = []
    while len(merges) < n_merges:
        counts = Counter()
        for w, parts in words.items():
            for pair in zip(parts, parts[1:]):
                counts[pair] += weights[w]
        if not counts:
            break
        best = min(counts, key=lambda p: (-counts[p], p))
        merges.append(best)
        words = {w: merge_pair(p, best) if len(p) > 1 else p for w, p in words.items()}
    return merges


class Tokenizer:
    def __init__(self, tokens, merges):
        self.tokens = tokens
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.ranks = {m: i for i, m in enumerate(merges)}
        self.cache = {}

    @classmethod
    def train(cls, facts, n_vocab):
        weights = Counter(to_chars(w) for f in facts for w in SPLIT.findall(f))
        # The answers (last words) first, so that each becomes a single token.
        for f in facts:
            weights[to_chars(" " + f.rsplit(" ", 1)[1].rstrip("."))] += 1_000
        merges = train_merges(weights, n_vocab - 258)
        tokens = list(BYTE_TO_CHAR.values()) + [a + b for a, b in merges] + [BOS, EOS]
        return cls(tokens, merges)

    def encode(self, text):
        out = []
        for piece in SPLIT.findall(text):
            if piece not in self.cache:
                parts = list(to_chars(piece))
                while len(parts) > 1:
                    pairs = [p for p in zip(parts, parts[1:]) if p in self.ranks]
                    if not pairs:
                        break
                    parts = merge_pair(parts, min(pairs, key=self.ranks.get))
                self.cache[piece] = [self.ids[p] for p in parts]
            out += self.cache[piece]
        return out

    def decode(self, ids):
        n = len(self.tokens)
        chars = "".join(self.tokens[i] for i in ids if i < n - 2)
        return bytes(CHAR_TO_BYTE[c] for c in chars).decode("utf-8", "replace")
