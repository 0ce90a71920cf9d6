"""quantize.py LIBRARY: how many million values a second llama.cpp's quantizer makes, on one thread."""

import ctypes
import json
import sys
import time

import numpy as np

chunk = ctypes.CDLL(sys.argv[1]).ggml_quantize_chunk
chunk.restype = ctypes.c_size_t
chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
rows = (np.random.default_rng(1).random((4096, 2048), dtype=np.float32) - 0.5) * 0.05
rates = {}
for name, kind, block, size in (("q8_0", 8, 32, 34), ("q6_K", 14, 256, 210), ("q4_K", 12, 256, 144), ("q4_0", 2, 32, 18)):
    out = np.zeros(rows.size // block * size, np.uint8)
    start = time.perf_counter()
    chunk(kind, rows.ctypes.data, out.ctypes.data, 0, rows.shape[0], rows.shape[1], None)
    rates[name] = round(rows.size / (time.perf_counter() - start) / 1e6, 1)
print(json.dumps(rates))
