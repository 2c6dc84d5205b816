"""A stand-in for PyTorch with one GPU, in plain Python, for the kit's program. STAND_IN: ``wrong`` or ``crash``."""

import math
import os
import random
import time
import types

MODE = os.environ.get("STAND_IN", "")
bfloat16, float16, float32, float64, int8, int32 = "bfloat16", "float16", "float32", "float64", "int8", "int32"
__version__ = "0.0-stand-in"
version = types.SimpleNamespace(cuda="0.0")
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=None)))
manual_seed = random.seed
calls = 0


class Tensor:
    device = "cuda"

    def __init__(self, flat, shape):
        self.flat, self.shape = flat, shape

    def view(self, *shape):
        return Tensor(self.flat, (len(self.flat),) if shape == (-1,) else shape)

    def rows(self):
        width = self.shape[1]
        return [self.flat[start : start + width] for start in range(0, len(self.flat), width)]

    def __getitem__(self, key):
        if isinstance(key, slice):
            return Tensor(self.flat[key], (len(self.flat[key]),))
        rows = [self.rows()[index] for index in key.flat]
        return Tensor([value for row in rows for value in row], (len(rows), self.shape[1]))

    def each(self, function, *others):
        return Tensor(
            [function(*values) for values in zip(self.flat, *(o.flat for o in others), strict=True)], self.shape
        )

    def __matmul__(self, other):
        columns = list(zip(*other.rows(), strict=True))
        flat = [sum(x * y for x, y in zip(row, column, strict=True)) for row in self.rows() for column in columns]
        return Tensor(flat, (self.shape[0], other.shape[1]))

    def __mul__(self, other):
        return self.each(lambda x, y: x * y, other)

    def __rmul__(self, number):
        return self.each(lambda x: number * x)

    def __add__(self, other):
        return self.each(lambda x, y: x + y, other)

    def __sub__(self, other):
        return self.each(lambda x, y: x - y, other)

    def __le__(self, other):
        return self.each(lambda x, y: x <= y, other)

    def __ne__(self, other):
        return self.each(lambda x, y: x != y, other)

    def __invert__(self):
        return self.each(lambda x: not x)

    def sqrt(self):
        return self.each(math.sqrt)

    def abs(self):
        return self.each(abs)

    def double(self):
        return self

    def float(self):
        return self

    def long(self):
        return self.each(lambda x: x if math.isnan(x) else int(x))

    def clone(self):
        return Tensor(list(self.flat), self.shape)

    def fill_(self, value):
        self.flat[:] = [value] * len(self.flat)

    def zero_(self):
        return self

    def numel(self):
        return len(self.flat)


def randn(*shape, device, dtype):
    return Tensor([random.gauss(0, 1) for k in range(math.prod(shape))], shape)


def randint(low, high, shape, device, dtype):
    return Tensor([float(int(low + (high - low) * abs(math.sin(k * 12.9898)))) for k in range(math.prod(shape))], shape)


def full(shape, value, device, dtype):
    return Tensor([value] * math.prod(shape), shape)


def empty(count, dtype, device):
    return Tensor([], (0,))


def empty_like(other):
    return other.clone()


def linspace(first, last, count, device):
    return Tensor([first + (last - first) * k / (count - 1) for k in range(count)], (count,))


def count_nonzero(tensor):
    return sum(map(bool, tensor.flat))


def _into(out, result):
    global calls
    calls += 1
    out.flat[:] = result.flat
    if MODE == "wrong" and calls > 60:
        out.flat[0] += 2.0**10
    if MODE == "crash" and calls > 60:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")


def mm(a, b, out):
    _into(out, a @ b)


def add(b, c, alpha, out):
    _into(out, b + alpha * c)


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, last):
        return (last.at - self.at) * 1e3


def _properties(index):
    return types.SimpleNamespace(name="Stand-in GPU", uuid=os.environ["CUDA_VISIBLE_DEVICES"].removeprefix("GPU-"))


cuda = types.SimpleNamespace(
    Event=Event, synchronize=lambda: None, get_device_properties=_properties,
    device_count=lambda: 0 if MODE == "none" else 1,
)  # fmt: skip
