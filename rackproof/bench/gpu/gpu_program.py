# mypy: ignore-errors
"""Matrix products and memory traffic of GPUs, timed and verified. Runs on a node; needs PyTorch, nothing of rackproof.

Starts one process per GPU, all at once, and prints one JSON line when all have ended well.
Usage: python3 -I gpu_program.py PRODUCT|TRIAD PRECISION RUNS SECONDS SIZES TORCH UUID...
SIZES: sides of the matrices, ``2048,4096``; for the triad one number, bytes of an array. TORCH: folder of PyTorch, or
``-`` for the interpreter's own.
"""

import itertools
import json
import math
import os
import subprocess
import sys
import time
from functools import partial

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32", "fp64": "float64"}
ROUNDING = {"bf16": 2**-8, "fp16": 2**-11, "tf32": 2**-11, "fp64": 2**-53}
"""Half a unit of the last place, of results or, for tf32, of the products' factors."""
DEVIATION = {"bf16": 2**-6, "fp16": 2**-8, "tf32": 2**-8, "fp64": 2**-40}
"""Allowed deviation of a sum from its reference, as a share of the root of the sum of its squared products: partial
sums may be rounded to the result's precision."""
ROWS = 16
"""Rows that are computed again in double precision."""
CACHE_BYTES = 256 * 2**20
"""More than the L2 cache of any GPU (B200: 126 MB); overwritten before every timed product."""
TRY_S = 0.03
"""Time of one shape of the sweep."""
TOGETHER_S = 0.02
"""Time of the calls that are queued at once: without gaps, the GPU is under full load."""


def timed(torch, call, before, seconds):
    """Calls within about ``seconds``: their number, and the time between events right before and after each."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    together = min(64, max(1, int(TOGETHER_S / (time.perf_counter() - began))))
    began, pairs = time.perf_counter(), []
    while not pairs or time.perf_counter() - began < seconds:
        for _ in range(together):
            before()
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            pair[0].record()
            call()
            pair[1].record()
            pairs.append(pair)
        torch.cuda.synchronize()
    return len(pairs), sum(first.elapsed_time(last) for first, last in pairs) / 1e3


def products(torch, precision, runs, seconds, sides):
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    dtype, device = getattr(torch, DTYPES[precision]), "cuda"
    side = max(sides)
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device=device)

    def factors(m, n, k):
        flat = left.view(-1)[: m * k].view(m, k), right.view(-1)[: k * n].view(k, n)
        return *flat, torch.full((m, n), math.nan, device=device, dtype=dtype)

    tried, best, highest = [], None, 0.0
    for m, n, k in itertools.product(sides, repeat=3):
        a, b, out = factors(m, n, k)
        count, elapsed = timed(torch, partial(torch.mm, a, b, out=out), cache.zero_, TRY_S)
        rate = 2 * m * n * k * count / elapsed
        tried.append([m, n, k, rate / 1e12])
        if rate > highest:
            best, highest = (m, n, k), rate
    a, b, out = factors(*best)
    torch.mm(a, b, out=out)
    reference = out.clone()
    wrong = deviating(torch, precision, a, b, reference)
    samples = []
    for _ in range(runs):
        out.fill_(math.nan)
        count, elapsed = timed(torch, partial(torch.mm, a, b, out=out), cache.zero_, seconds)
        samples.append({"count": count, "seconds": elapsed})
        wrong += int(torch.count_nonzero(out != reference))
    return {"tried": tried, "best": list(best), "samples": samples, "wrong": wrong, "checked": out.numel()}


def deviating(torch, precision, a, b, out):
    """Number of elements in some rows that are not the product in double precision, within the precision's rounding."""
    rows = torch.linspace(0, a.shape[0] - 1, ROWS, device=a.device).long()
    some = a[rows].double()
    whole = b.double()
    expected = some @ whole
    scale = ((some * some) @ (whole * whole)).sqrt()
    limit = 2 * ROUNDING[precision] * expected.abs() + DEVIATION[precision] * scale
    difference = (out[rows].double() - expected).abs()
    return int(torch.count_nonzero(~(difference <= limit)))


def triad(torch, precision, runs, seconds, sides):
    """a = b + 3 c of whole numbers, which float32 represents exactly."""
    (size,) = sides
    count = size // 4
    b, c = (torch.randint(0, 1024, (count,), device="cuda", dtype=torch.int32).float() for _ in range(2))
    a = torch.empty_like(b)
    wrong, samples = 0, []
    for _ in range(runs):
        a.fill_(math.nan)
        times, elapsed = timed(torch, partial(torch.add, b, c, alpha=3.0, out=a), lambda: None, seconds)
        samples.append({"count": times, "seconds": elapsed})
        for part in range(0, count, 2**26):
            piece = slice(part, part + 2**26)
            wrong += int(torch.count_nonzero(a[piece].long() != b[piece].long() + 3 * c[piece].long()))
    return {"bytes": count * 4, "samples": samples, "wrong": wrong, "checked": count}


def child(what, precision, runs, seconds, sizes, folder):
    if folder != "-":
        sys.path.insert(0, folder)
    import torch

    if torch.cuda.device_count() != 1:
        raise SystemExit(f"expected one GPU, PyTorch has {torch.cuda.device_count()}")
    device = torch.cuda.get_device_properties(0)
    run = {"product": products, "triad": triad}[what]
    figures = run(torch, precision, int(runs), float(seconds), [int(size) for size in sizes.split(",")])
    uuid = getattr(device, "uuid", None)
    print(json.dumps({
        "asked": os.environ["CUDA_VISIBLE_DEVICES"], "uuid": uuid and "GPU-" + str(uuid).removeprefix("GPU-"),
        "name": device.name, "torch": torch.__version__, "cuda": torch.version.cuda, **figures,
    }))  # fmt: skip


def main(arguments, uuids):
    began = time.time()
    command = [sys.executable, "-I", __file__, *arguments]
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    children = [
        subprocess.Popen(command, env={**environment, "CUDA_VISIBLE_DEVICES": uuid}, stdout=subprocess.PIPE)
        for uuid in uuids
    ]
    outputs = [process.communicate()[0] for process in children]
    for uuid, process in zip(uuids, children, strict=True):
        if process.returncode:
            raise SystemExit(f"{uuid}: exit status {process.returncode}")
    what, precision, runs, seconds, sizes, _ = arguments
    print(json.dumps({
        "rackproof_gpu": 1, "what": what, "precision": precision, "runs": int(runs), "seconds": float(seconds),
        "sizes": [int(size) for size in sizes.split(",")], "began": began,
        "gpus": [json.loads(output) for output in outputs],
    }))  # fmt: skip


if len(sys.argv) == 7:
    child(*sys.argv[1:])
else:
    main(sys.argv[1:7], sys.argv[7:])
