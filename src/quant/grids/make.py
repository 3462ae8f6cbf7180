"""Writes the codebooks of the IQ formats beside this file, each from the PyPI package gguf (0.19.0).

A codebook is a fixed list of vectors that the format numbers; an element of a vector is stored as
the index of its level, in two bits (IQ1, IQ2) or four (IQ3), lowest bits first:
    pip install gguf==0.19.0 numpy && python make.py
"""

from pathlib import Path

from gguf import quants

for name, cls in {
    "iq1": quants.IQ1_S, "iq2_xxs": quants.IQ2_XXS, "iq2_xs": quants.IQ2_XS, "iq2_s": quants.IQ2_S,
    "iq3_xxs": quants.IQ3_XXS, "iq3_s": quants.IQ3_S,
}.items():
    Path(__file__).with_name(f"{name}.bin").write_bytes(bytes.fromhex(cls.grid_hex.decode()))
