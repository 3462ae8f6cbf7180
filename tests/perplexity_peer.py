"""Perplexity of a text by llama.cpp, through llama-cpp-python: what llama-perplexity computes, as JSON.

    perplexity_peer.py MODEL TEXT N_CTX WINDOWS THREADS

Windows of N_CTX tokens, each with an empty cache and a beginning-of-text token where the file asks for one; of each the
second half is scored.
"""

import json
import sys

import llama_cpp
import numpy as np


def main():
    model, path, n_ctx, windows, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    with open(path, "rb") as f:
        text = f.read()
    # As llama.cpp reads -f.
    text = text.removesuffix(b"\n")
    llm = llama_cpp.Llama(
        model,
        n_ctx=n_ctx,
        n_batch=n_ctx,
        n_ubatch=n_ctx,
        n_threads=threads,
        n_threads_batch=threads,
        n_gpu_layers=0,
        logits_all=True,
        verbose=False,
    )
    ids = llm.tokenize(text, add_bos=True, special=False)
    if len(ids) < 2 * n_ctx:
        sys.exit(f"{len(ids)} tokens are too few for a context of {n_ctx}")
    vocab = llama_cpp.llama_model_get_vocab(llm.model)
    adds_bos = llama_cpp.llama_vocab_get_add_bos(vocab)
    windows = min(windows, len(ids) // n_ctx)
    first = n_ctx // 2
    nll = []
    for w in range(windows):
        window = list(ids[w * n_ctx : (w + 1) * n_ctx])
        if adds_bos:
            window[0] = llm.token_bos()
        llm.reset()
        llm.eval(window)
        for at in range(first, n_ctx - 1):
            logits = llm.scores[at].astype(np.float64)
            peak = logits.max()
            nll.append(float(peak + np.log(np.exp(logits - peak).sum()) - logits[window[at + 1]]))
    nll = np.array(nll)
    mean = nll.mean()
    error = np.sqrt(max((nll**2).mean() - mean**2, 0.0) / (len(nll) - 1))
    json.dump(
        {
            "build": f"llama-cpp-python {llama_cpp.__version__}",
            "tokens": len(ids),
            "windows": windows,
            "scored": len(nll),
            "perplexity": float(np.exp(mean)),
            "error": float(error * np.exp(mean)),
        },
        sys.stdout,
    )


main()
