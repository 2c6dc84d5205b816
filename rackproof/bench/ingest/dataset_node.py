# mypy: ignore-errors
"""Makes and checks data sets of JPEG samples. Runs on the nodes; needs numpy and Pillow, nothing of rackproof.

Usage: python3 -I dataset_node.py state|seal SPEC
       python3 -I dataset_node.py distinct|copies|check SPEC SHARE SHARES PROCESSES
PROCESSES 0: one a processor. SPEC is JSON: folder, format (files, tfrecord, tfrecord-gz, tar, tar-gz), samples (that
differ), copies, per_shard, mean_bytes (of a JPEG), large (three times height and width, quality 100, chroma not
subsampled), seed.

A shard is one file, or one folder of JPEG files. It is written under another name, synchronised and renamed; its entry
in ``index/`` follows. So a shard with an entry is complete, and a killed run continues with the others. Copies are
written byte by byte: a clone of blocks would be cached once. ``seal`` merges all entries into ``index.json``. Prints
one JSON line; errors are in ``error``, with exit status 1.
"""

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as Unfinished
from concurrent.futures.process import BrokenProcessPool

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from photographs_node import Camera
from records_node import example, record
from shards_node import bytes_of, shards_of
from start_node import Fault

MARK = "rackproof_dataset"
CHUNK = 1 << 20
SUFFIX = {"files": "", "tfrecord": ".tfrecord", "tfrecord-gz": ".tfrecord.gz", "tar": ".tar", "tar-gz": ".tar.gz"}


STALL_S = 600.0
"""Without a byte read or written for so long the file system hangs; one shard may take as long to reach its drives."""
POLL_S = 5.0
MOVED = multiprocessing.RawValue("Q")
"""Bytes that all processes have read or written, for whether it grows: without a lock, a few may be missing."""


class Stalled(Fault):
    """Nothing moves; processes may be in the kernel, where no signal ends them."""


class Hashing:
    """A file that hashes what is written to it."""

    def __init__(self, path):
        self.file, self.sha256, self.bytes = open(path, "xb"), hashlib.sha256(), 0  # noqa: SIM115

    def write(self, data):
        self.file.write(data)
        self.sha256.update(data)
        self.bytes += len(data)
        MOVED.value += len(data)
        return len(data)

    def flush(self):
        self.file.flush()

    def tell(self):
        return self.bytes

    def close(self):
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
        finally:
            self.file.close()


# Shards


def name_of(spec, shard):
    return f"shard-{shard:06d}" if spec["format"] == "files" else f"rackproof.{shard:06d}{SUFFIX[spec['format']]}"


def entry_of(spec, shard):
    """The shard's index entry if it is complete: what it lists has its size; else None."""
    try:
        with open(f"{spec['folder']}/index/{shard:06d}.json") as file:
            entry = json.load(file)
        status = os.stat(f"{spec['folder']}/{entry['name']}")
    except (FileNotFoundError, ValueError):
        return None
    whole = entry["name"] == name_of(spec, shard)
    return entry if whole and (spec["format"] == "files" or status.st_size == entry["bytes"]) else None


def make(spec, shard):
    """Write one shard of distinct samples."""
    path = f"{spec['folder']}/{name_of(spec, shard)}"
    part = f"{path}.part"
    _discard(part)
    first = shard * spec["per_shard"]
    numbers = range(first, min(first + spec["per_shard"], spec["samples"]))
    camera, samples, sizes = Camera(spec, shard), hashlib.sha256(), []

    def pictures():
        for number in numbers:
            jpeg, size = camera.jpeg(number)
            samples.update(jpeg)
            sizes.append(len(jpeg))
            yield number, jpeg, size

    try:
        digest, count = _write(spec["format"], part, pictures())
    except BaseException:
        _discard(part)
        raise
    _keep(spec, shard, part, path, count, digest, samples.hexdigest(), sizes)


def _write(form, part, pictures):
    """Write samples in a format. Returns sha256 and size."""
    if form == "files":
        os.mkdir(part)
        digest, count = hashlib.sha256(), 0
        for number, jpeg, _ in pictures:
            out = Hashing(f"{part}/rackproof.{number:09d}.jpg")
            with _closing(out):
                out.write(jpeg)
            digest.update(jpeg)
            count += len(jpeg)
        return digest.hexdigest(), count
    out = Hashing(part)
    with _closing(out):
        packed = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) if form.endswith("-gz") else out
        if form.startswith("tar"):
            with tarfile.open(fileobj=packed, mode="w|", format=tarfile.USTAR_FORMAT) as archive:
                for number, jpeg, _ in pictures:
                    for suffix, data in (("jpg", jpeg), ("cls", b"%d" % (number % 1000))):
                        member = tarfile.TarInfo(f"{number:09d}.{suffix}")
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))
        else:
            for number, jpeg, size in pictures:
                packed.write(record(example(jpeg, size, number % 1000, f"{number:09d}.jpg")))
        if packed is not out:
            packed.close()
    return out.sha256.hexdigest(), out.bytes


class _closing:
    """Closes a file also where closing is what fails."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        self.file.close()


def copy(spec, shard):
    """Write one copy of a distinct shard, byte by byte."""
    distinct = shards_of(spec)[0]
    source = entry_of(spec, shard % distinct)
    if source is None:
        raise Fault(f"{name_of(spec, shard % distinct)}: not complete, so it has no copies")
    path = f"{spec['folder']}/{name_of(spec, shard)}"
    part, original = f"{path}.part", f"{spec['folder']}/{source['name']}"
    _discard(part)
    digest, count = hashlib.sha256(), 0
    try:
        files = sorted(os.listdir(original)) if spec["format"] == "files" else [""]
        if files != [""]:
            os.mkdir(part)
        for name in files:
            out = Hashing(os.path.join(part, name) if name else part)
            with _closing(out), open(os.path.join(original, name) if name else original, "rb") as file:
                while data := file.read(CHUNK):
                    out.write(data)
                    digest.update(data)
            count += out.bytes
        if digest.hexdigest() != source["sha256"]:
            raise Fault(f"{source['name']}: changed since it was indexed: its sha256 differs")
    except BaseException:
        _discard(part)
        raise
    _keep(spec, shard, part, path, count, source["sha256"], source["samples_sha256"], source["sizes"])


def _keep(spec, shard, part, path, count, digest, samples, sizes):
    """Give a complete shard its name, then its entry in the index."""
    _discard(path)
    os.rename(part, path)
    newest = max((os.stat(f"{path}/{name}").st_mtime_ns for name in os.listdir(path)), default=0) if os.path.isdir(
        path) else os.stat(path).st_mtime_ns  # fmt: skip
    entry = {
        "name": name_of(spec, shard), "first": shard % shards_of(spec)[0] * spec["per_shard"], "samples": len(sizes),
        "bytes": count, "sha256": digest, "samples_sha256": samples, "sizes": sizes, "newest_ns": newest,
    }  # fmt: skip
    _replace(f"{spec['folder']}/index/{shard:06d}.json", entry)


def _replace(path, document):
    with open(f"{path}.part", "w") as file:
        json.dump(document, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.part", path)


def _discard(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


# Commands


def state(spec):
    """Parts of the data set that are there and that are missing, and the free space of the file system."""
    folder = spec["folder"]
    if not os.path.isdir(f"{folder}/index"):
        os.makedirs(f"{folder}/index")
        os.chmod(f"{folder}/index", 0o1777)  # noqa: S103  (the account has another number elsewhere)
    own = {key: spec[key] for key in ("format", "samples", "copies", "per_shard", "mean_bytes", "large", "seed")}
    try:
        with open(f"{folder}/spec.json") as file:
            there = json.load(file)
        kept = {key: there.get(key) for key in own if key != "copies"}
        if kept != {key: value for key, value in own.items() if key != "copies"}:
            raise Fault(f"{folder}: holds another data set ({json.dumps(there)}); remove it, or choose another name")
    except FileNotFoundError:
        there = None
    if there != own:
        _replace(f"{folder}/spec.json", own)
    entries = [entry_of(spec, shard) for shard in range(shards_of(spec)[1])]
    complete = [entry for entry in entries if entry is not None]
    free = os.statvfs(folder)
    return {
        "shards": len(entries), "complete": len(complete), "bytes": sum(entry["bytes"] for entry in complete),
        "samples": sum(entry["samples"] for entry in complete),
        "needed": max(0, bytes_of(spec) - sum(entry["bytes"] for entry in complete)) if len(complete) < len(entries)
        else 0, "free": free.f_bavail * free.f_frsize, "sealed": os.path.exists(f"{folder}/index.json"),
    }  # fmt: skip


def seal(spec):
    """Merge the entries of all shards into the index."""
    entries = [entry_of(spec, shard) for shard in range(shards_of(spec)[1])]
    missing = [name_of(spec, shard) for shard, entry in enumerate(entries) if entry is None]
    if missing:
        raise Fault(f"{spec['folder']}: {len(missing)} of {len(entries)} shards are missing, the first: {missing[0]}")
    samples, size = sum(entry["samples"] for entry in entries), sum(entry["bytes"] for entry in entries)
    digests = hashlib.sha256("".join(entry["samples_sha256"] for entry in entries).encode()).hexdigest()
    summary = {
        MARK: 1, "format": spec["format"], "samples": samples, "distinct": spec["samples"], "copies": spec["copies"],
        "bytes": size, "large": spec["large"], "samples_sha256": digests,
    }  # fmt: skip
    _replace(f"{spec['folder']}/index.json", summary | {"shards": entries})
    return summary


def check(spec, shard):
    """Read one shard. Returns its fault, or None, and its bytes."""
    try:
        with open(f"{spec['folder']}/index/{shard:06d}.json") as file:
            entry = json.load(file)
        path = f"{spec['folder']}/{entry['name']}"
        names = sorted(os.listdir(path)) if spec["format"] == "files" else [""]
        digest, count = hashlib.sha256(), 0
        for name in names:
            with open(os.path.join(path, name) if name else path, "rb") as file:
                while data := file.read(CHUNK):
                    digest.update(data)
                    count += len(data)
                    MOVED.value += len(data)
    except (OSError, ValueError) as error:
        return f"{name_of(spec, shard)}: {_reason(error)}", 0
    if count != entry["bytes"]:
        return f"{entry['name']}: expected {entry['bytes']} B, actual {count} B", count
    if digest.hexdigest() != entry["sha256"]:
        return f"{entry['name']}: its {count} B are others than those that were indexed", count
    return None, count


def _reason(error):
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _guarded(job):
    """In a process of the pool: the result, and the error as one line."""
    action, spec, shard = job
    try:
        return {"distinct": make, "copies": copy, "check": check}[action](spec, shard), None
    except (OSError, Fault) as error:
        return None, f"{name_of(spec, shard)}: {_reason(error)}"


def _as_worker():
    """In a process of the pool, first: it ends by SIGTERM, and the command's outputs end without it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nowhere, output)


def _results(futures):
    """Results in order. Raises Stalled when no byte has moved for a while."""
    moved, since = MOVED.value, time.monotonic()
    for future in futures:
        while True:
            try:
                result = future.result(POLL_S)
                break
            except Unfinished:
                if MOVED.value == moved and time.monotonic() - since > STALL_S:
                    raise Stalled(f"no byte was read or written for {STALL_S:.0f} s: its file system hangs") from None
                if MOVED.value != moved:
                    moved, since = MOVED.value, time.monotonic()
        since = time.monotonic()
        yield result


def work(action, spec, share, shares, processes):
    """One node's share of a command."""
    distinct, every = shards_of(spec)
    numbers = {"distinct": range(distinct), "copies": range(distinct, every), "check": range(every)}[action]
    own = [shard for shard in numbers if shard % shares == share]
    todo = own if action == "check" else [shard for shard in own if entry_of(spec, shard) is None]
    answer = {"shards": len(own), "done": 0, "bytes": 0, "faults": []}
    if not todo:
        return answer
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    processes = min(processes or len(os.sched_getaffinity(0)), len(todo))
    # multiprocessing.Pool waits forever for a process that was killed, and ends its own by SIGTERM: one that waits for
    # a lock then may miss a handler of Python's.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _as_worker)
    wait = True
    try:
        for result, error in _results([pool.submit(_guarded, (action, spec, shard)) for shard in todo]):
            if error is not None:
                raise Fault(error)
            answer["done"] += 1
            if action == "check":
                answer["bytes"] += result[1]
                answer["faults"] += [result[0]] if result[0] else []
    except BrokenProcessPool:
        raise Fault("one of its processes died; see the kernel's messages for a lack of memory") from None
    except Stalled:
        wait = False
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(wait, cancel_futures=True)
    return answer


def main(words):
    action, spec = words[0], json.loads(words[1])
    os.umask(0o022)
    try:
        if action in ("state", "seal"):
            answer = {"state": state, "seal": seal}[action](spec)
        else:
            answer = work(action, spec, *map(int, words[2:5]))
    except (OSError, Fault) as error:
        print(json.dumps({MARK: 1, "action": action, "error": _reason(error)}), flush=True)
        if isinstance(error, Stalled):
            os._exit(1)  # waits for no process of the pool
        return 1
    print(json.dumps({MARK: 1, "action": action} | answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
