# mypy: ignore-errors
"""Many small files in a tree, or the same bytes in one file of each process. Runs on the nodes.

Usage: python3 -I files_node.py CONFIG, a JSON object:
job (its name), action (clear, prepare, create, stat, read, remove), folders (one for each mount, which processes take
in turn), files (of each process), file_bytes, shards (whether each process has one file, with ``files`` parts),
processes.

``clear`` removes the tree; ``prepare`` also makes its folders. The other actions have a common start, whose keys
``start_node.py`` reads, and are timed.
Every file or part begins with the numbers of its process and of itself. Every error ends the run with one line in
``error``. Prints one JSON line.
"""

import json
import multiprocessing
import os
import shutil
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from start_node import Fault, common_start, report

LATE_S = 0.25  # how much later than the common start this node may begin
DRIFT = 0.01  # how much its clock may gain or lose in a run
PER_FOLDER = 100
TAG = struct.Struct(">II")


def own_folder(config, process):
    return f"{config['folders'][process % len(config['folders'])]}/{process}"


def paths(config, process):
    """A path for each file of a process; one path for its shard."""
    folder = own_folder(config, process)
    if config["shards"]:
        return [f"{folder}/0/rackproof.0"]
    return [f"{folder}/{number // PER_FOLDER}/rackproof.{number}" for number in range(config["files"])]


def create(path, config, process, first, count):
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        for number in range(first, first + count):
            data = TAG.pack(process, number) + os.urandom(config["file_bytes"] - TAG.size)
            while data:
                data = data[os.write(handle, data) :]
    finally:
        os.close(handle)


def read(path, config, process, first, count):
    handle = os.open(path, os.O_RDONLY)
    try:
        for number in range(first, first + count):
            data = b""
            while len(data) < config["file_bytes"]:
                more = os.read(handle, config["file_bytes"] - len(data))
                if not more:
                    raise Fault(f"{path}: expected {config['file_bytes']} B, actual {len(data)} B")
                data += more
            if data[: TAG.size] != TAG.pack(process, number):
                raise Fault(f"{path}: it begins with other bytes than were written")
    finally:
        os.close(handle)


def stat(path, config, process, first, count):
    if (size := os.stat(path).st_size) != count * config["file_bytes"]:
        raise Fault(f"{path}: expected {count * config['file_bytes']} B, actual {size} B")


def remove(path, config, process, first, count):
    os.unlink(path)


ACTIONS = {"create": create, "stat": stat, "read": read, "remove": remove}


def check_start(late_s):
    """Raises Fault, before a file is touched."""
    if late_s > LATE_S:
        raise Fault(f"it began {late_s:.1f} s after the common start: the node is busy")


def work(config, process, start_s, pipe):
    """One process. Sends its numbers of files and bytes, and when it began and ended, or an error."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    act, every = ACTIONS[config["action"]], paths(config, process)
    count = config["files"] if config["shards"] else 1
    try:
        while (left := start_s - time.monotonic()) > 0:
            time.sleep(left)
        began_s = time.monotonic()
        check_start(began_s - start_s)
        for number, path in enumerate(every):
            act(path, config, process, number, count)
        ended_s = time.monotonic()
    except Fault as error:
        pipe.send(str(error))
    except OSError as error:
        pipe.send(f"{error.filename or config['folders'][0]}: {error.strerror}")
    else:
        moved = config["files"] * config["file_bytes"] if config["action"] in ("create", "read") else 0
        pipe.send([len(every), moved, began_s - start_s, ended_s - start_s])


def run(config):
    """All processes. Raises Fault."""
    start_at, start_s = common_start(config)
    wall_s, own_s = time.time(), time.monotonic()
    context, workers = multiprocessing.get_context("fork"), []
    for process in range(config["processes"]):
        mine, theirs = context.Pipe(False)
        worker = context.Process(target=work, args=(config, process, start_s, theirs), daemon=True)
        worker.start()
        theirs.close()
        workers.append((worker, mine))
    check_start(time.monotonic() - start_s)
    rows = []
    for number, (worker, pipe) in enumerate(workers):
        try:
            row = pipe.recv()
        except EOFError:
            worker.join()
            raise Fault(f"process {number} of {len(workers)} died, exit status {worker.exitcode}") from None
        if isinstance(row, str):
            raise Fault(row)
        rows.append(row)
    apart_s = (time.time() - wall_s) - (time.monotonic() - own_s)
    if abs(apart_s) > DRIFT * (time.monotonic() - own_s) + 0.05:
        raise Fault(f"its clock went {apart_s:+.2f} s wrong; see chrony")
    return {"start_at": start_at, "processes": rows}


def clear(config):
    """Raises Fault."""

    def complain(call, path, error):
        error = error[1] if isinstance(error, tuple) else error
        if not isinstance(error, FileNotFoundError):
            raise Fault(f"{path}: {error.strerror}")

    for folder in config["folders"]:
        shutil.rmtree(folder, onerror=complain)
    if config["action"] == "prepare":
        for process in range(config["processes"]):
            for number in range(0, 1 if config["shards"] else config["files"], PER_FOLDER):
                os.makedirs(f"{own_folder(config, process)}/{number // PER_FOLDER}", exist_ok=True)


def main(words):
    config = json.loads(words[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # daemons end with it
    try:
        if config["action"] in ACTIONS:
            answer = run(config)
        else:
            clear(config)
            answer = {}
    except Fault as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": f"{error.filename or config['folders'][0]}: {error.strerror}"}
    asked = {key: config[key] for key in ("job", "folders", "start_file") if key in config}
    print(json.dumps({"rackproof_files": 1} | asked | answer), flush=True)
    if "error" in answer and "start_file" in config:
        report(config, answer["error"])
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
