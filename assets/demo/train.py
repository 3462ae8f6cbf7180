#!/usr/bin/env python3
"""Train cbtop's demo model on facts.txt and write it to ../demo.gguf.

A llama-architecture decoder in JAX on the CPU. Everything is seeded, so that the
same machine and the same package versions give the same file.

    python facts.py && python train.py && python check.py
"""
import argparse
import time
from functools import partial
from pathlib import Path

import gguf
import jax
import jax.numpy as jnp
import numpy as np

from tokenizer import BOS, EOS, Tokenizer

HERE = Path(__file__).resolve().parent

SEED = 7
N_VOCAB, N_LAYER, N_EMBD, N_FF = 1536, 8, 128, 384
N_HEAD, N_HEAD_KV, HEAD_DIM, N_CTX = 4, 2, 32, 512
EPS, ROPE_BASE = 1e-5, 10000.0

# Documents (sequences, tokens): mostly short, every sixth step the whole context.
STEPS, SHORT, LONG, LONG_EVERY = 1500, (8, 96), (2, 512), 6
LR, WARMUP, DECAY = 4e-3, 50, 0.05
P_JUMP = 0.3  # chance that a document goes on with a random fact, not the next line


# --- data ---------------------------------------------------------------------


class Data:
    """Documents: they start at a fact, then walk down the file with random jumps."""

    def __init__(self, tok, facts, rng):
        self.rng, self.n = rng, len(facts)
        self.ids = [tok.encode(f + "\n") for f in facts]
        # Where the answer (the last word) starts in each fact.
        self.answer = [len(tok.encode(f.rsplit(" ", 1)[0])) for f in facts]

    def document(self, length):
        ids, i = [], self.rng.integers(self.n)
        while len(ids) <= length:
            ids += self.ids[i]
            jump = self.rng.random() < P_JUMP
            i = self.rng.integers(self.n) if jump else (i + 1) % self.n
        return ids[: length + 1]

    def batch(self, n, length):
        return np.array([self.document(length) for _ in range(n)], np.int32)


# --- model --------------------------------------------------------------------


def init(rng):
    kv = N_HEAD_KV * HEAD_DIM

    def mat(n_in, n_out, scale=1.0):
        w = rng.standard_normal((N_LAYER, n_in, n_out)) * scale / np.sqrt(n_in)
        return jnp.asarray(w, jnp.float32)

    depth = 1 / np.sqrt(2 * N_LAYER)
    return {
        "embd": jnp.asarray(rng.standard_normal((N_VOCAB, N_EMBD)) * 0.05, jnp.float32),
        "out_norm": jnp.ones(N_EMBD),
        "layers": {
            "attn_norm": jnp.ones((N_LAYER, N_EMBD)),
            "q": mat(N_EMBD, N_EMBD),
            "k": mat(N_EMBD, kv),
            "v": mat(N_EMBD, kv),
            "o": mat(N_EMBD, N_EMBD, depth),
            "ffn_norm": jnp.ones((N_LAYER, N_EMBD)),
            "gate": mat(N_EMBD, N_FF),
            "up": mat(N_EMBD, N_FF),
            "down": mat(N_FF, N_EMBD, depth),
        },
    }


def rms(x, w):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * w


def rope(x):
    """Rotate neighbouring pairs (2i, 2i + 1), as llama.cpp's llama graph does."""
    t, d = x.shape[1], x.shape[-1]
    freq = ROPE_BASE ** (-jnp.arange(0, d, 2) / d)
    angle = (jnp.arange(t)[:, None] * freq)[None, :, None, :]
    c, s = jnp.cos(angle), jnp.sin(angle)
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def layer(x, w):
    n, t, _ = x.shape
    group = N_HEAD // N_HEAD_KV
    h = rms(x, w["attn_norm"]).reshape(n * t, N_EMBD)
    q = rope((h @ w["q"]).reshape(n, t, N_HEAD, HEAD_DIM))
    k = rope((h @ w["k"]).reshape(n, t, N_HEAD_KV, HEAD_DIM))
    v = (h @ w["v"]).reshape(n, t, N_HEAD_KV, HEAD_DIM)
    # The heads of one group share a key and a value: stack their queries.
    q = q.transpose(0, 2, 1, 3).reshape(n * N_HEAD_KV, group * t, HEAD_DIM)
    k = k.transpose(0, 2, 3, 1).reshape(n * N_HEAD_KV, HEAD_DIM, t)
    v = v.transpose(0, 2, 1, 3).reshape(n * N_HEAD_KV, t, HEAD_DIM)
    score = (q @ k).reshape(n * N_HEAD_KV, group, t, t) / np.sqrt(HEAD_DIM)
    score = jnp.where(jnp.tril(jnp.ones((t, t), bool)), score, -1e30)
    att = jax.nn.softmax(score, -1).reshape(n * N_HEAD_KV, group * t, t) @ v
    att = att.reshape(n, N_HEAD, t, HEAD_DIM).transpose(0, 2, 1, 3).reshape(n * t, N_EMBD)
    x = x + (att @ w["o"]).reshape(x.shape)
    h = rms(x, w["ffn_norm"]).reshape(n * t, N_EMBD)
    h = (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    return x + h.reshape(x.shape)


def forward(p, ids):
    """The residual stream after every layer: (layer, batch, token, embd)."""

    def step(x, w):
        x = layer(x, w)
        return x, x

    return jax.lax.scan(step, p["embd"][ids], p["layers"])[1]


def log_probs(p, x):
    return jax.nn.log_softmax(rms(x, p["out_norm"]) @ p["embd"].T, -1)


def loss_fn(p, ids):
    """Plain next-token cross-entropy at the last layer."""
    lp = log_probs(p, forward(p, ids[:, :-1])[-1])
    return -jnp.take_along_axis(lp, ids[:, 1:, None], -1).mean()


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(p, opt, ids, lr, t):
    """AdamW, with the gradient clipped to norm 1."""
    loss, g = jax.value_and_grad(loss_fn)(p, ids)
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x / jnp.maximum(1.0, norm), g)
    b1, b2 = 0.9, 0.98
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, opt[0], g)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, opt[1], g)

    def update(w, m, v):
        step = (m / (1 - b1**t)) / (jnp.sqrt(v / (1 - b2**t)) + 1e-8)
        return w - lr * (step + (DECAY * w if w.ndim == 3 else 0.0))

    return jax.tree.map(update, p, m, v), (m, v), loss


@jax.jit
def lens_probs(p, ids, pos, want):
    """P(want) by the logit lens after every layer, at one position a sequence."""
    xs = forward(p, ids)
    x = jnp.take_along_axis(xs, pos[None, :, None, None], 2)[:, :, 0]
    lp = log_probs(p, x)
    p_want = jnp.exp(jnp.take_along_axis(lp, want[None, :, None], -1)[..., 0])
    return p_want, lp[-1].argmax(-1) == want


def probe(p, data):
    """Every fact alone, from position 0: lens over the layers, and who is right."""
    ids = np.zeros((data.n, 40), np.int32)
    for i, f in enumerate(data.ids):
        ids[i, : len(f)] = f
    pos = np.array(data.answer) - 1
    want = ids[np.arange(data.n), pos + 1]
    return [np.asarray(a) for a in lens_probs(p, ids, pos, want)]


# --- GGUF ---------------------------------------------------------------------


def write_gguf(path, p, tok):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("cbtop demo")
    w.add_description("A tiny llama trained on a few hundred plain facts, for cbtop's demo.")
    w.add_license("MIT OR Apache-2.0")
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(N_VOCAB)
    w.add_context_length(N_CTX)
    w.add_embedding_length(N_EMBD)
    w.add_block_count(N_LAYER)
    w.add_feed_forward_length(N_FF)
    w.add_head_count(N_HEAD)
    w.add_head_count_kv(N_HEAD_KV)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_layer_norm_rms_eps(EPS)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tok.tokens)
    special = {BOS, EOS}
    kinds = gguf.TokenType
    w.add_token_types([kinds.CONTROL if t in special else kinds.NORMAL for t in tok.tokens])
    w.add_token_merges([f"{a} {b}" for a, b in tok.ranks])
    w.add_bos_token_id(tok.ids[BOS])
    w.add_eos_token_id(tok.ids[EOS])
    w.add_add_bos_token(False)
    w.add_add_eos_token(False)

    def matrix(name, x):
        q8 = gguf.GGMLQuantizationType.Q8_0
        data = gguf.quants.quantize(np.ascontiguousarray(x, np.float32), q8)
        w.add_tensor(name, data, raw_dtype=q8)

    def norm(name, x):
        w.add_tensor(name, np.ascontiguousarray(x, np.float32))

    matrix("token_embd.weight", p["embd"])
    norm("output_norm.weight", p["out_norm"])
    names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
             "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    for i in range(N_LAYER):
        ws = {k: np.asarray(v[i]) for k, v in p["layers"].items()}
        norm(f"blk.{i}.attn_norm.weight", ws["attn_norm"])
        norm(f"blk.{i}.ffn_norm.weight", ws["ffn_norm"])
        for ours, theirs in names.items():
            # GGUF keeps one row per output.
            matrix(f"blk.{i}.{theirs}.weight", ws[ours].T)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# --- main ---------------------------------------------------------------------


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=HERE.parent / "demo.gguf", type=Path)
    ap.add_argument("--steps", default=STEPS, type=int)
    args = ap.parse_args()

    facts = (HERE / "facts.txt").read_text().splitlines()
    tok = Tokenizer.train(facts, N_VOCAB)
    rng = np.random.default_rng(SEED)
    data = Data(tok, facts, rng)
    p = init(rng)
    opt = (jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p))
    print(sum(x.size for x in jax.tree.leaves(p)), "weights,",
          sum(map(len, data.ids)), "tokens of facts", flush=True)

    began = time.time()
    for step in range(1, args.steps + 1):
        cosine = 0.5 * (1 + np.cos(np.pi * step / args.steps))
        lr = LR * min(step / WARMUP, 1.0) * (0.01 + 0.99 * cosine)
        shape = LONG if step % LONG_EVERY == 0 else SHORT
        p, opt, loss = train_step(p, opt, data.batch(*shape), lr, step)
        if step % 50 == 0 or step == args.steps:
            lens, right = probe(p, data)
            print(f"{step:5d} {time.time() - began:5.0f}s loss {loss:.3f} right {right.mean():.3f} "
                  "lens: mean " + " ".join(f"{x:.2f}" for x in lens.mean(1)) + " France "
                  + " ".join(f"{x:.2f}" for x in lens[:, 0]), flush=True)
    write_gguf(args.out, p, tok)
    print("wrote", args.out, args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
