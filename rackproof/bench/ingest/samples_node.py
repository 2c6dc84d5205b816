# mypy: ignore-errors
"""Reads the samples of a data set: which worker reads what, from files, records and archives. Runs on the nodes; needs
numpy and Pillow, nothing of rackproof."""

import gzip
import io
import os
import random
import sys
import tarfile
import time

import numpy as np
from PIL import Image

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from records_node import Damaged, encoded, read_record
from start_node import Fault

BUFFER = 1 << 20


def opened(path, size, newest_ns):
    """Descriptor of a file that is what the index says. Raises Fault."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        status = os.fstat(descriptor)
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}") from None
    if status.st_size != size or status.st_mtime_ns > newest_ns:
        os.close(descriptor)
        what = f"expected {size} B, actual {status.st_size} B" if status.st_size != size else "it was written again"
        raise Fault(f"{path}: changed since it was indexed: {what}")
    return descriptor


def whole(path, size, newest_ns, tally):
    """All bytes of a small file, with as few copies as a plain loop makes: its cost is part of the measurement."""
    began = time.monotonic()
    descriptor = opened(path, size, newest_ns)
    try:
        data = os.read(descriptor, size)
        while len(data) < size:
            if not (more := os.read(descriptor, size - len(data))):
                raise Fault(f"{path}: truncated: {len(data)} of {size} B")
            data += more
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    tally["bytes"] += size
    tally["read_s"] += time.monotonic() - began
    return data


class Counted(io.RawIOBase):
    """A file that counts its bytes and the time of its reads; it must be what the index says."""

    def __init__(self, path, size, newest_ns, tally):
        self.path, self.tally, began = path, tally, time.monotonic()
        self.descriptor = opened(path, size, newest_ns)
        tally["read_s"] += time.monotonic() - began

    def readable(self):
        return True

    def readinto(self, buffer):
        began = time.monotonic()
        try:
            count = os.readv(self.descriptor, [buffer])
        except OSError as error:
            raise Fault(f"{self.path}: {error.strerror}") from None
        self.tally["read_s"] += time.monotonic() - began
        self.tally["bytes"] += count
        return count

    def close(self):
        if not self.closed:
            os.close(self.descriptor)
        super().close()


def samples_of(path, form, entry, tally):
    """JPEGs of one shard of records or of an archive, in the order of its file."""
    with io.BufferedReader(Counted(path, entry["bytes"], entry["newest_ns"], tally), BUFFER) as raw:
        file = gzip.GzipFile(fileobj=raw) if form.endswith("-gz") else raw
        number = 0
        for jpeg in _archived(file) if form.startswith("tar") else _recorded(file):
            if number >= entry["samples"] or len(jpeg) != entry["sizes"][number]:
                raise Damaged(f"sample {number} is not the one that was indexed")
            number += 1
            yield path, jpeg
        if number != entry["samples"]:
            raise Damaged(f"truncated: expected {entry['samples']} samples, actual {number}")


def _recorded(file):
    while (item := read_record(file)) is not None:
        yield encoded(item[0])


def _archived(file):
    with tarfile.open(fileobj=file, mode="r|", bufsize=BUFFER) as archive:
        for member in archive:
            if member.name.endswith(".jpg"):
                yield archive.extractfile(member).read()


def pieces(config, index, worker, turn):
    """Pieces that a worker reads in pass ``turn``: path and entry of shards, or path, size and newest time of single
    files; one worker of the job reads each piece."""
    every, shards = config["workers"] * config["nodes"], index["shards"]
    folder = config["folders"][worker % len(config["folders"])]
    if index["format"] == "files":
        work = [(entry, number) for entry in shards for number in range(entry["samples"])]
    else:
        work = [(entry, None) for entry in shards]
    if len(work) < every:
        raise Fault(f"the data set has {len(work)} shards for {every} workers; make it with a smaller per_shard")
    random.Random(config["seed"] * 1000 + turn).shuffle(work)  # noqa: S311  (the same on every node)
    work = work[config["node"] * config["workers"] + worker :: every]
    if index["format"] != "files":
        return [(f"{folder}/{entry['name']}", entry) for entry, _ in work]
    return [
        (
            f"{folder}/{entry['name']}/rackproof.{entry['first'] + number:09d}.jpg",
            entry["sizes"][number],
            entry["newest_ns"],
        )
        for entry, number in work
    ]


def stream(config, index, worker, tally):
    """JPEGs of one worker, pass after pass; one pass only without ``seconds``. With ``drained`` it ends with the
    present shard: what the operating system has read ahead is then what the worker reads."""
    return _passes(config, index, worker, tally, pieces(config, index, worker, 0))


def _passes(config, index, worker, tally, work):
    turn = 0
    while True:
        yield from _files(work, tally) if index["format"] == "files" else _shards(work, index["format"], tally)
        if tally["drained"]:
            return
        turn += 1
        tally["passes"] = turn
        if not config["seconds"]:
            return
        work = pieces(config, index, worker, turn)


def _files(work, tally):
    for path, size, newest_ns in work:
        yield path, whole(path, size, newest_ns, tally)
        if tally["drained"]:
            return


def _shards(work, form, tally):
    for path, entry in work:
        try:
            yield from samples_of(path, form, entry, tally)
        except (Damaged, tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
            raise Fault(f"{path}: {error}") from None
        if tally["drained"]:
            return


def pixels(path, jpeg, crop, random_source):
    """A random part of the picture, ``crop`` pixels wide and high, sometimes mirrored."""
    try:
        with Image.open(io.BytesIO(jpeg)) as picture:
            picture.load()
            rgb = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise Fault(f"{path}: not a JPEG that can be decoded: {error}") from None
    share = random_source.uniform(0.5, 1.0)
    side = max(1, int(min(rgb.size) * share))
    x, y = random_source.randint(0, rgb.width - side), random_source.randint(0, rgb.height - side)
    part = rgb.resize((crop, crop), Image.BILINEAR, box=(x, y, x + side, y + side))
    if random_source.random() < 0.5:  # a mirrored array would be copied value by value
        part = part.transpose(Image.FLIP_LEFT_RIGHT)
    return np.asarray(part)
