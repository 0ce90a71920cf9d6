"""What PyPI `gguf` reads in GGUF files, and whether their tensors are quantized as it, and as llama.cpp, quantize them.

gguf_files.py GGML PLAIN FILE ...: GGML is llama.cpp's library libggml-base.so, or "" where there is none; PLAIN is the file
with float32 values. Prints one JSON object for each file.
"""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize, quantize
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

library, plain, *files = sys.argv[1:]
REFERENCES = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q5_0)


def llama_cpp():
    """llama.cpp's own quantizer of rows."""
    chunk = ctypes.CDLL(library).ggml_quantize_chunk
    chunk.restype = ctypes.c_size_t
    chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]

    def quantized(values: np.ndarray, kind: Type) -> np.ndarray:
        rows = np.ascontiguousarray(values.reshape(-1, values.shape[-1]), dtype=np.float32)
        block, size = GGML_QUANT_SIZES[kind]
        out = np.zeros(rows.size // block * size, np.uint8)
        chunk(int(kind), rows.ctypes.data, out.ctypes.data, 0, rows.shape[0], rows.shape[1], None)
        return out

    return quantized


def value_of(field):
    value = field.contents()
    return value if not isinstance(value, list) or len(value) < 8 else len(value)


own = llama_cpp() if library else None
reference = {tensor.name: tensor for tensor in GGUFReader(plain).tensors}
values = {name: np.array(tensor.data, np.float32) for name, tensor in reference.items()}
for file in files:
    reader = GGUFReader(file)
    kinds, compared, differing, error = {}, {"gguf": 0, "llama.cpp": 0}, [], 0.0
    for tensor in reader.tensors:
        kind = Type(tensor.tensor_type)
        kinds[kind.name] = kinds.get(kind.name, 0) + 1
        exact = values[tensor.name]
        stored = np.ascontiguousarray(tensor.data).view(np.uint8).ravel()
        if kind in REFERENCES:
            compared["gguf"] += 1
            theirs = np.ascontiguousarray(quantize(exact, kind)).view(np.uint8).ravel()
            if not np.array_equal(stored, theirs):
                differing.append(f"{tensor.name} by gguf")
        if own is not None and kind is not Type.F32:
            compared["llama.cpp"] += 1
            if not np.array_equal(stored, own(exact, kind)):
                differing.append(f"{tensor.name} by llama.cpp")
        read = dequantize(tensor.data, kind).reshape(exact.shape)
        scale = float(np.sqrt(np.mean(exact**2))) or 1.0
        error = max(error, float(np.sqrt(np.mean((read - exact) ** 2))) / scale)
    print(
        json.dumps(
            {
                "file": Path(file).name,
                "shapes": {tensor.name: [int(size) for size in tensor.shape] for tensor in reader.tensors},
                "metadata": {name: value_of(field) for name, field in reader.fields.items()},
                "kinds": kinds,
                "compared": compared,
                "differing": differing,
                "error": error,
            }
        )
    )
