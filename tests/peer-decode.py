"""Speed of llama.cpp on a GGUF file, measured as `cbtop bench` measures itself: random tokens through llama_decode.

    python tests/peer-decode.py -m FILE [-p 512] [-n 128] [-t 1] [-r 5] [-d 0]

Needs llama-cpp-python. Prints one JSON object with the tokens a second of every repetition; nothing but llama_decode and
llama_synchronize is inside the timing. Context, batch (512) and kv type (f16) are those that `cbtop bench` uses.
"""

import argparse
import ctypes
import json
import random
import time

import llama_cpp as llama

BATCH = 512


def silence():
    """Keeps llama.cpp's log off the terminal; the callback must outlive every call."""
    callback = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    return callback


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=128)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-d", "--n-depth", type=int, default=0)
    args = parser.parse_args()

    log = silence()
    llama.llama_backend_init()
    model_params = llama.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(args.model.encode(), model_params)
    if not model:
        parser.error(f"llama.cpp cannot load {args.model}")
    params = llama.llama_context_default_params()
    params.n_ctx = args.n_depth + max(args.n_prompt, args.n_gen)
    params.n_batch = params.n_ubatch = BATCH
    params.n_threads = params.n_threads_batch = args.threads
    context = llama.llama_init_from_model(model, params)
    if not context:
        parser.error("llama.cpp cannot make a context")
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    rng = random.Random(0)

    def tokens(n):
        return (llama.llama_token * n)(*(rng.randrange(n_vocab) for _ in range(n)))

    def decode(ids):
        if llama.llama_decode(context, llama.llama_batch_get_one(ids, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        llama.llama_synchronize(context)

    def batches(ids, size):
        return [(llama.llama_token * len(part))(*part) for part in (ids[i : i + size] for i in range(0, len(ids), size))]

    def reset():
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        for batch in batches(tokens(args.n_depth), BATCH):
            decode(batch)

    def measure(n, size, warmup):
        ids = batches(tokens(n), size)
        samples = []
        reset()
        for batch in ids[:warmup]:
            decode(batch)
        for _ in range(args.repetitions):
            reset()
            began = time.perf_counter()
            for batch in ids:
                decode(batch)
            samples.append(n / (time.perf_counter() - began))
        return samples

    result = {}
    if args.n_prompt:
        result[f"pp{args.n_prompt}"] = measure(args.n_prompt, BATCH, warmup=1 << 30)
    if args.n_gen:
        result[f"tg{args.n_gen}"] = measure(args.n_gen, 1, warmup=1)
    print(json.dumps(result))
    del log


if __name__ == "__main__":
    main()
