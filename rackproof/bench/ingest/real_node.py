# mypy: ignore-errors
"""Real accelerators: ranks of PyTorch under torchrun, fed by the workers of ``ingest_node.py``. Runs on the nodes.

``torch`` of the configuration: model, kind (training, inference), precision (fp32, amp, fp16), backend (nccl, gloo),
python (its interpreter), folder (of PyTorch, or empty), master (address and port of the first node), node and nodes,
interface, gpus (UUIDs). A rank counts as busy from the moment its batch is on the device, and the step before has
ended, to the end of its step.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from start_node import Fault

PLACE = struct.Struct("<i")
LINE = struct.Struct("<cidd")
AHEAD = 2  # batches that a rank holds: one that it computes, one that it copies
END_S = 60
EARLY_S = 0.5  # by which a rank of another node, whose clock differs, may end all of them
LAUNCH = (
    "import sys; sys.path[:0] = [p for p in sys.argv[1:2] if p]; del sys.argv[1]\n"
    "from torch.distributed.run import main; main()"
)


class Ranks:
    """All ranks of this node."""

    def __init__(self, config, window, complain):
        self.config, self.own, self.window, self.complain = config, config["torch"], window, complain
        self.count, self.about, self.links, self.process = config["accelerators"], [], {}, None
        shape = (max(1, config["workers"]), config["slots"], config["batch"], config["crop"], config["crop"], 3)
        self.file = os.memfd_create("batches")
        os.ftruncate(self.file, int(np.prod(shape)))
        self.batches = np.memmap(f"/proc/self/fd/{self.file}", np.uint8, "r+", shape=shape)
        self.name = f"rackproof-ingest-{secrets.token_hex(8)}"
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind("\0" + self.name)
        self.server.listen(self.count)

    def start(self, until_s, check):
        """Start the ranks and wait until each has made its first steps. ``check`` may raise. Raises Fault."""
        own = self.own
        spec = {key: own[key] for key in ("model", "kind", "precision", "backend")} | {
            "batch": self.config["batch"], "crop": self.config["crop"], "socket": self.name,
            "batches": f"/proc/{os.getpid()}/fd/{self.file}", "synthetic": self.config["data"] == "synthetic",
        }  # fmt: skip
        address, _, port = own["master"].rpartition(":")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_node.py")
        command = [
            own["python"], "-I", "-c", LAUNCH, own["folder"], f"--nnodes={own['nodes']}", f"--node-rank={own['node']}",
            f"--nproc-per-node={self.count}", f"--master-addr={address}", f"--master-port={port}", "--max-restarts=0",
            program, json.dumps(spec),
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": own["folder"]}
        if own["interface"]:
            environment |= {"GLOO_SOCKET_IFNAME": own["interface"], "NCCL_SOCKET_IFNAME": own["interface"]}
        if own["gpus"]:
            environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(own["gpus"])}
        try:
            self.process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise Fault(f"{own['python']}: {error.strerror}") from None
        self.stderr = b""
        threading.Thread(target=self._listen, daemon=True).start()
        abouts = {}
        while len(abouts) < self.count:
            check()
            self._wait(self.server if len(self.links) < self.count else None, abouts, until_s)
        self.about = [abouts[local] for local in range(self.count)]

    def _listen(self):
        while part := self.process.stderr.read1(4096):
            self.stderr = (self.stderr + part)[-8000:]

    def _wait(self, server, abouts, until_s):
        """One event before the start: a rank that connects, or that is ready."""
        left = until_s - time.monotonic()
        if left <= 0:
            raise Fault("its ranks were not ready in time; raise start_s of the job")
        waiting = [link for local, link in self.links.items() if local not in abouts]
        readable, _, _ = select.select([*waiting, *([server] if server else [])], [], [], min(left, 0.5))
        if server in readable:
            link, _ = server.accept()
            if struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] != os.getuid():
                link.close()
                return
            self.links[PLACE.unpack(link.recv(PLACE.size, socket.MSG_WAITALL))[0]] = link
            return
        for local, link in self.links.items():
            if link in readable:
                kind, length, _, _ = self._line(link)
                text = link.recv(length, socket.MSG_WAITALL).decode(errors="replace")
                if kind != b"r":
                    raise Fault(f"rank {local}: {text}")
                abouts[local] = json.loads(text)
        if not readable:
            self.check()

    def check(self):
        """Before the start. Raises Fault if the ranks have ended."""
        if self.process.poll() is not None:
            lines = [line for line in self.stderr.decode(errors="replace").splitlines() if line.strip()]
            raise Fault(f"torchrun ended before the start: {lines[-1][:300] if lines else self.process.returncode}")

    @staticmethod
    def _line(link):
        try:
            data = link.recv(LINE.size, socket.MSG_WAITALL)
        except ConnectionResetError:  # it ended before it read that it should
            data = b""
        return LINE.unpack(data) if len(data) == LINE.size else (b"", 0, 0, 0)

    def feed(self, number, accelerator, take, slots, done, going):
        """Hand batches to a rank until the window ends, or ``going()`` is false; ``take`` is None where it makes its
        own."""
        link, end_s, flying, ended = self.links[number], self.window.end_s, [], False
        while going():
            if not ended and time.monotonic() >= end_s:
                ended = True
                with contextlib.suppress(OSError):  # it has ended already, which is seen below
                    link.sendall(PLACE.pack(-1))
            feeding = take is not None and not ended
            if feeding and len(flying) < AHEAD:
                taken = take(min(end_s, time.monotonic() + 0.02) if flying else end_s)
                if taken is not None:
                    flying.append(taken[0])
                    try:
                        link.sendall(PLACE.pack(taken[0][0] * self.config["slots"] + taken[0][1]))
                    except OSError:
                        return self.complain(f"rank {number} ended before the end")
                    continue
            if not select.select([link], [], [], 0.005 if feeding else 0.2)[0]:
                if ended and time.monotonic() > end_s + END_S:
                    return self.complain(f"rank {number} still computes {END_S} s after the end")
                continue
            kind, place, there_s, step_end_s = self._line(link)
            if kind == b"c":
                slots[place // self.config["slots"]].release()
            elif kind == b"s":
                accelerator.account(there_s, step_end_s)
                done(flying.pop(0) if flying else (0, 0, step_end_s, step_end_s), step_end_s)
            else:
                text = link.recv(place, socket.MSG_WAITALL).decode(errors="replace") if kind == b"f" else ""
                if text or time.monotonic() < end_s - EARLY_S:
                    self.complain(f"rank {number} {'failed: ' + text if text else 'ended'} before the end")
                return None

    def close(self):
        if self.process is None or self.process.poll() is not None:
            return
        for link in self.links.values():
            link.close()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, signum)
                self.process.wait(5)
                return
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue
