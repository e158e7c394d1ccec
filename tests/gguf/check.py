"""Reads a GGUF with gguf-py and prints what it found as JSON (usage: check.py read FILE), or writes the files that the
Rust side then opens (usage: check.py write DIRECTORY)."""

import json
import sys
from pathlib import Path

import numpy as np

import gguf


def plain(x):
    if isinstance(x, list):
        return [plain(v) for v in x]
    return x.item() if isinstance(x, np.generic) else x


def read(path):
    reader = gguf.GGUFReader(path)
    fields = {}
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            fields[key] = [field.types[0].name, plain(field.contents())]
    tensors = []
    for t in reader.tensors:
        data = np.ascontiguousarray(t.data).view(np.uint8).reshape(-1)
        tensors.append(
            {
                "name": t.name,
                "type": t.tensor_type.name,
                "shape": [int(n) for n in t.shape],
                "offset": int(t.data_offset),
                "bytes": data.tolist(),
            }
        )
    print(json.dumps({"alignment": int(reader.alignment), "fields": fields, "tensors": tensors}))


def fill(writer):
    writer.add_uint32("test.u32", 7)
    writer.add_float32("test.f32", 0.5)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "ünï")
    writer.add_array("test.strings", ["a", "b ", "ü"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_tensor("f32", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("f16", np.arange(5, dtype=np.float16))
    writer.add_tensor("i8", np.arange(7, dtype=np.int8))
    blocks = np.arange(2 * 34, dtype=np.uint8).reshape(2, 34)
    writer.add_tensor("q8_0", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(directory):
    directory = Path(directory)
    fill(gguf.GGUFWriter(directory / "plain.gguf", "test"))
    aligned = gguf.GGUFWriter(directory / "aligned.gguf", "test")
    aligned.add_custom_alignment(1024)
    fill(aligned)
    fill(gguf.GGUFWriter(directory / "big.gguf", "test", endianess=gguf.GGUFEndian.BIG))
    fill(gguf.GGUFWriter(directory / "split.gguf", "test", split_max_tensors=2))
    fill(gguf.GGUFWriter(directory / "small.gguf", "test", split_max_tensors=2, small_first_shard=True))


{"read": read, "write": write}[sys.argv[1]](sys.argv[2])
