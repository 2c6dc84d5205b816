"""A stand-in for PyTorch, for ranks of the ingest benchmark. STAND_IN: ``crash`` fails a step.

On processors a step is computed where it is called; on a GPU it is queued, and ends later.
"""

import contextlib
import os
import time
import types

import numpy

from . import distributed

__version__ = "0.0-stand-in"
uint8, float32, bfloat16, float16 = "uint8", "float32", "bfloat16", "float16"
STEP_S = 0.02
channels_last = None
calls = 0


class Gpu:
    """The device: when it has ended all that was queued."""

    used = False
    free_s = 0.0


def compute():
    if Gpu.used:
        Gpu.free_s = max(Gpu.free_s, time.monotonic()) + STEP_S
    else:
        time.sleep(STEP_S)


def until(end_s):
    time.sleep(max(0.0, end_s - time.monotonic()))


class Tensor(numpy.ndarray):
    def permute(self, *_):
        return self

    def to(self, *_, **__):
        return self

    def div(self, _):
        return self

    def backward(self):
        global calls
        calls += 1
        compute()
        distributed.total(1)  # gradients: every rank takes part in every step
        if os.environ.get("STAND_IN") == "crash" and calls > 20 and os.environ["RANK"] == "1":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


def tensor(values):
    return numpy.array(values).view(Tensor)


def randint(*sizes, **_):
    shape = next(size for size in sizes if isinstance(size, tuple))
    return numpy.ones(shape, numpy.uint8).view(Tensor)


def from_numpy(array):
    return array.view(Tensor)


class Pinned:
    def __init__(self, shape):
        self.memory = numpy.zeros(shape, numpy.uint8)

    def numpy(self):
        return self.memory

    def to(self, *_, **__):
        return self.memory.copy().view(Tensor)


def empty(shape, **_):
    return Pinned(shape)


class Event:
    """After everything that was queued before ``record``."""

    def __init__(self, blocking=False):
        self.end_s = 0.0

    def record(self):
        self.end_s = Gpu.free_s

    def synchronize(self):
        until(self.end_s)


@contextlib.contextmanager
def stream(_):
    yield


class Stream:
    def synchronize(self):
        pass


cuda = types.SimpleNamespace(
    Event=Event, Stream=Stream, stream=stream,
    set_device=lambda _: None,
    synchronize=lambda: until(Gpu.free_s),
    get_device_name=lambda _: "stand-in",
    get_device_properties=lambda _: types.SimpleNamespace(uuid=os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]),
)  # fmt: skip
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False))


class Device:
    type = "cpu"


class Model:
    def to(self, *_, **__):
        return self

    def __call__(self, images):
        if not images.any():
            raise RuntimeError("a batch without a picture")
        return images

    def train(self):
        return self

    eval = train

    def parameters(self):
        return []


class Optimizer:
    def __init__(self, *_, **__):
        pass

    def zero_grad(self, **_):
        pass

    step = zero_grad


class GradScaler:
    """Gradients that were not scaled, or whose scale was not renewed since the last step, are an error."""

    def __init__(self, _):
        self.turn = "scale"

    def _next(self, own, following):
        if self.turn != own:
            raise RuntimeError(f"{own} of a scaler that expects {self.turn}")
        self.turn = following

    def scale(self, loss):
        self._next("scale", "step")
        return loss

    def step(self, optimizer):
        self._next("step", "update")
        optimizer.step()

    def update(self):
        self._next("update", "scale")


def device(kind, *_):
    Gpu.used = kind == "cuda"
    made = Device()
    made.type = kind
    return made


def set_num_threads(_):
    pass


manual_seed = set_num_threads


@contextlib.contextmanager
def no_grad():
    compute()
    yield


@contextlib.contextmanager
def autocast(*_):
    yield


nn = types.SimpleNamespace(
    parallel=types.SimpleNamespace(DistributedDataParallel=lambda model, device_ids: model),
    CrossEntropyLoss=lambda: lambda images, labels: images,
)
optim = types.SimpleNamespace(SGD=Optimizer)
amp = types.SimpleNamespace(GradScaler=GradScaler)
