#!/usr/bin/env python3
"""Compiles the CUDA sources written by `compile-kernels DIR` to machine code with NVRTC; no GPU is needed.

usage: check.py DIR [ARCH...]        (by default sm_80 and sm_90)

The library and headers come from an installed CUDA toolkit or from `pip install nvidia-cuda-nvrtc-cu12
nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12` (the last has the headers of matrix operations); NVRTC_LIB names the
library where it is elsewhere. Ends with status 1 if a kernel does not compile, and 77 where there is no NVRTC.
"""

import ctypes
import glob
import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def load_nvrtc():
    names = [os.environ["NVRTC_LIB"]] if "NVRTC_LIB" in os.environ else ["libnvrtc.so.12", "libnvrtc.so"]
    try:
        spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        spec = None
    for folder in spec.submodule_search_locations if spec else []:
        names += glob.glob(f"{folder}/lib/libnvrtc.so.*")
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def text(nvrtc, size, get, program):
    length = ctypes.c_size_t()
    size(program, ctypes.byref(length))
    buffer = ctypes.create_string_buffer(length.value)
    get(program, buffer)
    return buffer.value.decode(errors="replace").strip()


def compile_source(nvrtc, source, arch):
    """The size of the machine code, and the compiler's log where there is none."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    options += [f"--include-path={path}".encode() for path in include_paths()]
    array = (ctypes.c_char_p * len(options))(*options)
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)
    log = text(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    size = ctypes.c_size_t()
    if status == 0:
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return size.value, log


def include_paths():
    paths = [os.environ[name] for name in ("CUDA_INCLUDE",) if name in os.environ]
    for package in ("nvidia.cuda_runtime", "nvidia.cuda_nvcc"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            spec = None
        paths += [f"{folder}/include" for folder in (spec.submodule_search_locations if spec else [])]
    return [path for path in paths + ["/usr/local/cuda/include"] if os.path.isdir(path)]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, archs = Path(sys.argv[1]), sys.argv[2:] or ["sm_80", "sm_90"]
    nvrtc = load_nvrtc()
    if nvrtc is None:
        print("skipped: no NVRTC (pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12)")
        sys.exit(77)
    kernels = [line.split("\t") for line in (folder / "kernels.tsv").read_text().splitlines()]
    failed = 0
    for arch in archs:
        done = total = 0
        # The library is called outside the interpreter's lock.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(
                pool.map(lambda kernel: compile_source(nvrtc, (folder / f"{kernel[0]}.cu").read_bytes(), arch), kernels)
            )
        for (number, name, _), (size, log) in zip(kernels, results):
            if size == 0:
                failed += 1
                print(f"{arch} {number} {name}: failed\n{log}")
            else:
                done, total = done + 1, total + size
        print(f"{arch}: {done} of {len(kernels)} kernels compiled, not run ({total} bytes of machine code)")
    sys.exit(1 if failed or not kernels else 0)


if __name__ == "__main__":
    main()
