"""One repetition of one test on llama.cpp, as `cbtop bench` runs it on its own engine.

Random tokens go through llama_decode; nothing but llama_decode and llama_synchronize is inside the timing. Fills the cache
to the depth, warms up (the whole prompt, one token), fills it again, times. Prints one JSON object under the field names
of llama-bench. Needs llama-cpp-python 0.3 or newer.
"""

import argparse
import ctypes
import json
import random
import sys
import time

import llama_cpp as llama

NEEDED = [
    "llama_model_load_from_file",
    "llama_init_from_model",
    "llama_vocab_n_tokens",
    "llama_model_get_vocab",
    "llama_get_memory",
    "llama_memory_clear",
    "llama_batch_get_one",
    "llama_decode",
    "llama_synchronize",
]
KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}


def silence():
    """Keeps llama.cpp's log off the terminal; the callback must outlive every call."""
    callback = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    return callback


def main():
    parser = argparse.ArgumentParser()
    for flag in ["--prompt", "--gen", "--depth", "--threads", "--chunk"]:
        parser.add_argument(flag, type=int, required=True)
    parser.add_argument("--kv-type", choices=KV_TYPES, required=True)
    parser.add_argument("--no-warmup", action="store_true")
    parser.add_argument("model")
    args = parser.parse_args()

    missing = [name for name in NEEDED if not hasattr(llama, name)]
    if missing:
        sys.exit(f"llama-cpp-python {llama.__version__} has no {missing[0]}: version 0.3.10 or newer is needed")
    log = silence()
    llama.llama_backend_init()
    params = llama.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(args.model.encode(), params)
    if not model:
        sys.exit(f"llama.cpp cannot load {args.model}")
    params = llama.llama_context_default_params()
    params.n_ctx = args.depth + args.prompt + args.gen
    params.n_batch = params.n_ubatch = args.chunk
    params.n_threads = params.n_threads_batch = args.threads
    params.type_k = params.type_v = KV_TYPES[args.kv_type]
    context = llama.llama_init_from_model(model, params)
    if not context:
        sys.exit("llama.cpp cannot make a context of these types and lengths")
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    rng = random.Random(0)

    def batches(n, size):
        ids = [rng.randrange(n_vocab) for _ in range(n)]
        return [(llama.llama_token * len(part))(*part) for part in (ids[i : i + size] for i in range(0, n, size))]

    depth, prompt, gen = batches(args.depth, args.chunk), batches(args.prompt, args.chunk), batches(args.gen, 1)

    def decode(parts):
        for ids in parts:
            if llama.llama_decode(context, llama.llama_batch_get_one(ids, len(ids))) != 0:
                sys.exit("llama_decode failed")
            llama.llama_synchronize(context)

    def fill():
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        decode(depth)

    if not args.no_warmup:
        fill()
        decode(prompt + gen[:1])
    fill()
    began = time.perf_counter_ns()
    decode(prompt + gen)
    elapsed = time.perf_counter_ns() - began
    print(
        json.dumps(
            {
                "build": f"llama-cpp-python {llama.__version__}",
                "n_prompt": args.prompt,
                "n_gen": args.gen,
                "n_threads": args.threads,
                "samples_ns": [elapsed],
            }
        )
    )
    del log


main()
