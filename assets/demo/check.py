#!/usr/bin/env python3
"""Read ../demo.gguf back and measure it with a plain numpy forward in float64 over
the dequantised weights. Prints a report and writes expected.json."""
import argparse
import hashlib
import json
from pathlib import Path

import gguf
import numpy as np

from tokenizer import Tokenizer

HERE = Path(__file__).resolve().parent
PROMPTS = [
    "The capital of France is",
    "The capital of Japan is",
    "The capital of Kenya is",
    "The capital of Peru is",
    "The opposite of hot is",
    "The chemical symbol for gold is",
    "The currency of Japan is the",
    "The day after Monday is",
    "Two plus two is",
    "A young dog is called a",
]


class Model:
    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.meta = {k: f.contents() for k, f in r.fields.items()}
        self.w = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in r.tensors
        }
        m = self.meta
        self.tok = Tokenizer(
            m["tokenizer.ggml.tokens"],
            [tuple(s.split(" ")) for s in m["tokenizer.ggml.merges"]],
        )
        self.n_layer = m["llama.block_count"]
        self.n_head = m["llama.attention.head_count"]
        self.n_kv = m["llama.attention.head_count_kv"]
        self.dim = m["llama.rope.dimension_count"]
        self.base = m["llama.rope.freq_base"]
        self.eps = m["llama.attention.layer_norm_rms_epsilon"]
        self.n_ctx = m["llama.context_length"]

    def rms(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x, pos):
        angle = pos[:, None, None] * self.base ** (-np.arange(0, self.dim, 2) / self.dim)
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)

    def forward(self, ids, cache):
        """The residual stream after each layer, for new `ids` after those in `cache`."""
        t = len(ids)
        past = cache[0][0].shape[0] if cache else 0
        pos = np.arange(past, past + t)
        x = self.w["token_embd.weight"][ids]
        mask = np.where(np.arange(past + t)[None, :] <= pos[:, None], 0.0, -np.inf)
        out = []
        for i in range(self.n_layer):
            w = lambda s: self.w[f"blk.{i}.{s}.weight"]  # noqa: E731
            h = self.rms(x, f"blk.{i}.attn_norm.weight")
            q = self.rope((h @ w("attn_q").T).reshape(t, self.n_head, -1), pos)
            k = self.rope((h @ w("attn_k").T).reshape(t, self.n_kv, -1), pos)
            v = (h @ w("attn_v").T).reshape(t, self.n_kv, -1)
            if past:
                k = np.concatenate([cache[i][0], k])
                v = np.concatenate([cache[i][1], v])
                cache[i] = (k, v)
            else:
                cache.append((k, v))
            group = self.n_head // self.n_kv
            kk, vv = np.repeat(k, group, 1), np.repeat(v, group, 1)
            s = np.einsum("thd,shd->hts", q, kk) / np.sqrt(self.dim) + mask
            s = np.exp(s - s.max(-1, keepdims=True))
            s /= s.sum(-1, keepdims=True)
            x = x + np.einsum("hts,shd->thd", s, vv).reshape(t, -1) @ w("attn_output").T
            h = self.rms(x, f"blk.{i}.ffn_norm.weight")
            g = h @ w("ffn_gate").T
            x = x + (g / (1 + np.exp(-g)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
            out.append(x)
        return np.stack(out)

    def probs(self, x):
        z = self.rms(x, "output_norm.weight") @ self.w["token_embd.weight"].T
        z = np.exp(z - z.max(-1, keepdims=True))
        return z / z.sum(-1, keepdims=True)

    def lens(self, ids):
        """Probabilities (layer, vocab) at the last position."""
        return self.probs(self.forward(ids, [])[:, -1])

    def generate(self, ids, n):
        cache, new, out = [], ids, []
        for _ in range(n):
            new = [int(self.probs(self.forward(new, cache)[-1, -1]).argmax())]
            out += new
        return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default=HERE.parent / "demo.gguf", type=Path)
    ap.add_argument("--expected", default=HERE / "expected.json", type=Path)
    args = ap.parse_args()
    raw = args.model.read_bytes()
    sha = hashlib.sha256(raw).hexdigest()
    m = Model(args.model)
    tok = m.tok
    print(f"{args.model.name}: {len(raw)} bytes, sha256 {sha}")
    facts = (HERE / "facts.txt").read_text().splitlines()

    right, whole, p_answer, wrong, lens_mean, jumps, firsts = 0, 0, [], [], [], [], []
    capitals = [0, 0]
    for f in facts:
        prompt, last = f.rsplit(" ", 1)
        ids = tok.encode(prompt)
        answer = tok.encode(" " + last)
        assert ids + answer == tok.encode(f)
        if prompt.startswith("The capital of"):
            assert len(answer) == 2, f  # the name and the full stop
        p = m.lens(ids)
        ok = p[-1].argmax() == answer[0]
        right += ok
        whole += ok and m.generate(ids, len(answer)) == answer
        capitals[0] += ok and prompt.startswith("The capital of")
        capitals[1] += prompt.startswith("The capital of")
        p_answer.append(p[-1, answer[0]])
        lens_mean.append(p[:, answer[0]])
        jumps.append(np.diff(p[:, answer[0]]).max())
        top = p.argmax(-1) == answer[0]
        firsts.append(next((i for i in range(m.n_layer) if top[i:].all()), m.n_layer) + 1)
        if not ok:
            wrong.append((f, tok.decode([int(p[-1].argmax())])))
    n = len(facts)
    print(f"facts right: {right}/{n} = {right / n:.4f} (whole answer with the full stop: {whole}; "
          f"capitals {capitals[0]}/{capitals[1]})")
    print(f"P(answer): mean {np.mean(p_answer):.4f} median {np.median(p_answer):.4f}; "
          f"above 0.9: {np.mean(np.array(p_answer) > 0.9):.4f}")
    for f, got in wrong:
        print("  wrong:", f, "->", repr(got))
    print("mean lens  " + " ".join(f"{x:.3f}" for x in np.mean(lens_mean, 0)))
    print("layer from which the answer stays on top:", {
        k: firsts.count(k) for k in range(1, m.n_layer + 2) if k in firsts})
    print(f"largest rise within one layer: median {np.median(jumps):.2f}, "
          f"above 0.9 for {np.mean(np.array(jumps) > 0.9):.3f} of the facts")

    expected = []
    by_prompt = {f.rsplit(" ", 1)[0]: f for f in facts}
    for prompt in PROMPTS:
        ids = tok.encode(prompt)
        answer = tok.encode(" " + by_prompt[prompt].rsplit(" ", 1)[1])[0]
        p = m.lens(ids)
        top = int(p[-1].argmax())
        expected.append({
            "text": prompt,
            "ids": ids,
            "argmax": top,
            "argmax_text": tok.decode([top]),
            "p": float(p[-1, top]),
            "answer": answer,
            "answer_text": tok.decode([answer]),
            "lens": [
                {
                    "layer": i,
                    "rank": int((q > q[answer]).sum()) + 1,
                    "p": float(q[answer]),
                    "argmax": int(q.argmax()),
                    "argmax_text": tok.decode([int(q.argmax())]),
                }
                for i, q in enumerate(p)
            ],
        })
        print(f"\n{prompt!r} -> {tok.decode([top])!r} p {p[-1, top]:.4f}")
        for row in expected[-1]["lens"]:
            print("  layer {layer}  rank {rank:5d}  p {p:.6f}  top {argmax_text!r}".format(**row))

    prompt = tok.encode(PROMPTS[0])
    new = m.generate(prompt, 300)
    print("\n" + PROMPTS[0] + tok.decode(new))
    long = m.generate(prompt, m.n_ctx - len(prompt))
    told = (PROMPTS[0] + tok.decode(long)).split("\n")[:-1]
    print(f"\nto the end of the context: {len(told)} sentences, {len(set(told))} different, "
          f"{sum(s in set(facts) for s in told)} of them in facts.txt")
    for s in told:
        if s not in set(facts):
            print("  not a fact:", repr(s))

    out = {
        "model": args.model.name,
        "sha256": sha,
        "bytes": len(raw),
        "note": "float64 forward over the dequantised weights; layers count from 0; rank 1 is the "
                "top; the lens is output_norm and the tied embedding on the residual stream after "
                "the layer",
        "prompts": expected,
        "greedy": {"text": PROMPTS[0], "ids": prompt, "next_ids": new, "next_text": tok.decode(new)},
    }
    args.expected.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
