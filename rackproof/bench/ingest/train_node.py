# mypy: ignore-errors
"""One rank of a training or of forward passes with a torchvision model. Runs on the nodes, under torchrun, which
``real_node.py`` starts; needs torch, torchvision and numpy, nothing of rackproof.

Usage: train_node.py CONFIG, JSON: model, kind (training, inference), precision (fp32, amp, fp16), backend (nccl, gloo),
batch, crop, socket (abstract, of its parent), batches (a file in memory), synthetic (no batches come).

Its parent sends the place of each batch in the shared file, and -1 at the end. The rank answers with the
place as soon as the batch is copied, and with two times for each step: since when its batch was on the device, and when
the step had ended, by the monotonic clock. Ranks of a training end after the same step: before each they add up who has
to stop.
"""

import contextlib
import datetime
import json
import mmap
import os
import queue
import socket
import struct
import sys
import threading
import time

PLACE = struct.Struct("<i")
LINE = struct.Struct("<cidd")  # kind: copied, step, ready, failed; place; two times
CLASSES = 1000
AUXILIARY = ("googlenet", "inception_v3")  # models with further heads, which are left out, and a slow initialisation
WARMUP = 3
BEGUN = 2  # steps that the device has not ended: one that it computes, and the next one
TIMEOUT_S = 300


def main():
    config = json.loads(sys.argv[1])
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect("\0" + config["socket"])
    local = int(os.environ["LOCAL_RANK"])
    link.sendall(struct.pack("<i", local))
    try:
        rank = Rank(config, link, local)
        about = json.dumps(rank.about).encode()
        link.sendall(LINE.pack(b"r", len(about), 0, 0) + about)
        rank.run()
    except Exception as error:
        fail(link, error)
    os._exit(0)  # threads of NCCL may still wait for others


def fail(link, error):
    """Say why this rank ends, and end it, from any thread."""
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300].encode()
    with contextlib.suppress(OSError):
        link.sendall(LINE.pack(b"f", len(text), 0, 0) + text)
    os._exit(1)


class Rank:
    def __init__(self, config, link, local):
        import torch
        import torchvision

        self.torch, self.config, self.link = torch, config, link
        self.cuda, self.training = config["backend"] == "nccl", config["kind"] == "training"
        self.device = torch.device("cuda", local) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
            torch.backends.cudnn.benchmark = True
        else:
            torch.set_num_threads(1)
        self.votes = None
        if self.training:
            timeout = datetime.timedelta(seconds=TIMEOUT_S)
            torch.distributed.init_process_group(config["backend"], timeout=timeout)
            self.votes = torch.distributed.new_group(backend="gloo", timeout=timeout)
        torch.manual_seed(1)
        plain = dict.fromkeys(("aux_logits", "init_weights"), False) if config["model"] in AUXILIARY else {}
        model = getattr(torchvision.models, config["model"])(weights=None, num_classes=CLASSES, **plain)
        if self.cuda:
            model = model.to(self.device, memory_format=torch.channels_last)
        if self.training:
            devices = [local] if self.cuda else None
            model = torch.nn.parallel.DistributedDataParallel(model, device_ids=devices)
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            self.loss = torch.nn.CrossEntropyLoss()
            self.scaler = torch.amp.GradScaler(self.device.type) if config["precision"] == "fp16" else None
        self.model = model.train() if self.training else model.eval()
        self.shape = (config["batch"], config["crop"], config["crop"], 3)
        self.labels = torch.randint(CLASSES, (config["batch"],), device=self.device)
        self.random = torch.randint(256, self.shape, dtype=torch.uint8, device=self.device)
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.ready, self.lock = queue.Queue(1), threading.Lock()
        for _ in range(WARMUP):  # kernels are chosen, memory is taken, the ranks meet
            self.step(self.random)
        self.wait()
        self.about = {
            "torch": str(torch.__version__), "torchvision": str(torchvision.__version__),
            "device": torch.cuda.get_device_name(self.device) if self.cuda else "processor",
            "uuid": str(getattr(torch.cuda.get_device_properties(self.device), "uuid", "")) if self.cuda else "",
            "world": torch.distributed.get_world_size() if self.training else 1,
        }  # fmt: skip

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def step(self, batch):
        torch, precision = self.torch, self.config["precision"]
        half = {"amp": "bfloat16", "fp16": "float16"}.get(precision)
        with torch.autocast(self.device.type, getattr(torch, half)) if half else contextlib.nullcontext():
            images = batch.permute(0, 3, 1, 2).to(torch.float32).div(255)
            if not self.training:
                with torch.no_grad():
                    return self.model(images)
            loss = self.loss(self.model(images), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler:  # gradients in half precision would vanish
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        return loss

    def fetch(self):
        """Copies batches to the device, one ahead; None at the end."""
        import numpy

        torch, config = self.torch, self.config
        file = os.open(config["batches"], os.O_RDONLY)
        memory = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        count = self.shape[0] * self.shape[1] * self.shape[2] * 3
        pinned = torch.empty(self.shape, dtype=torch.uint8, pin_memory=True) if self.cuda else None
        while True:
            data = self.link.recv(PLACE.size, socket.MSG_WAITALL)
            place = PLACE.unpack(data)[0] if len(data) == PLACE.size else -1
            if place < 0:
                self.ready.put(None)
                return
            view = numpy.frombuffer(memory, numpy.uint8, count, place * count).reshape(self.shape)
            if self.cuda:
                pinned.numpy()[...] = view
                with torch.cuda.stream(self.stream):
                    batch = pinned.to(self.device, non_blocking=True)
                self.stream.synchronize()
            else:
                batch = torch.from_numpy(view.copy())
            self.tell(b"c", place)
            self.ready.put((batch, time.monotonic()))

    def ahead(self):
        """The next batch and since when it is there; None at the end."""
        if not self.config["synthetic"]:
            return self.ready.get()
        return (self.random, 0.0) if self.open() else None

    def tell(self, *line):
        with self.lock:
            self.link.sendall(LINE.pack(*line, *(0,) * (4 - len(line))))

    def open(self):
        """Whether the parent wants more, where it sends no batches."""
        self.link.setblocking(False)
        try:
            self.link.recv(PLACE.size)
            return False
        except BlockingIOError:
            return True
        finally:
            self.link.setblocking(True)

    def run(self):
        torch = self.torch
        if not self.config["synthetic"]:
            threading.Thread(target=self.fetch, daemon=True).start()
        steps, free = queue.Queue(), threading.Semaphore(BEGUN)
        reporter = threading.Thread(target=self.report, args=(steps, free), daemon=True)
        reporter.start()
        while True:
            taken = self.ahead()
            if self.training:  # a step that one rank leaves out would never end on the others
                stop = torch.tensor([0 if taken else 1])
                torch.distributed.all_reduce(stop, group=self.votes)
                taken = None if stop.item() else taken
            if not taken:
                steps.put(None)
                reporter.join()
                return
            free.acquire()
            self.step(taken[0])
            done = torch.cuda.Event(blocking=True) if self.cuda else None
            if done:
                done.record()
            steps.put((done, taken[1]))

    def report(self, steps, free):
        """Wait for each step, and say when its batch was there and when it ended. In a thread of its own: the rank
        itself may wait for its next batch while the device ends a step."""
        try:
            if self.cuda:
                self.torch.cuda.set_device(self.device)
            while (step := steps.get()) is not None:
                done, there_s = step
                if done:
                    done.synchronize()
                self.tell(b"s", 0, there_s, time.monotonic())
                free.release()
        except Exception as error:
            fail(self.link, error)


if __name__ == "__main__":
    main()
