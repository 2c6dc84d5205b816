# mypy: ignore-errors
"""DLIO, the engine of MLPerf Storage, on this node: makes its data set, or trains from it. Runs on the nodes.

Usage: python3 -I dlio_node.py CONFIG, a JSON object: job (its name), action (make, train), bin (the folder of
``dlio_benchmark`` and ``mpirun``; empty: PATH), configs (a folder of DLIO's configurations; empty: its own), config
(one of them), accelerators, batch, files, epochs, options (further keys of the configuration), folder (of the data
set), seconds (limit of the tool); of several clients also clients and launcher (words that start the ranks on all of
them). It is called as ``mlpstorage`` calls it. Prints one JSON line.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from start_node import Fault

PREFIX = "rackproof."
"""Prefix of the data set's files, by which the client's state counts them."""
MADE = "made.json"
ANY_NUMBER = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""Open MPI 4 and 5: more ranks than processors, none of them bound, because each has reading threads."""


def program(config, name):
    path = shutil.which(name, path=config["bin"] or None)
    if path is None:
        raise Fault(f"{name} is not installed in {config['bin'] or 'PATH'}; see ingest.dlio of the inventory")
    return path


def words(config, output):
    """Words of the command. The kit's keys come last, because the last ones count."""
    makes = config["action"] == "make"
    own = {
        "dataset.data_folder": config["folder"], "dataset.num_files_train": config["files"],
        "dataset.num_files_eval": 0, "dataset.file_prefix": PREFIX, "reader.batch_size": config["batch"],
        "train.epochs": config["epochs"], "workflow.generate_data": makes, "workflow.train": not makes,
        "workflow.evaluation": False, "workflow.checkpoint": False, "workflow.profiling": False,
    }  # fmt: skip
    command = config.get("launcher") or [program(config, "mpirun"), "-np", str(config["accelerators"])]
    command = [*command, program(config, "dlio_benchmark")]
    command += [f"workload={config['config']}", f"++hydra.run.dir={output}", "++hydra.output_subdir=dlio_config"]
    command += [f"++workload.{key}={value}" for key, value in (config["options"] | own).items()]
    return command + ([f"--config-dir={config['configs']}"] if config["configs"] else [])


def call(config, output):
    """Run the tool, with its own children, at most for its time."""
    environment = os.environ | ANY_NUMBER
    if config["bin"]:
        environment["PATH"] = f"{config['bin']}:{environment.get('PATH', os.defpath)}"
    began = time.monotonic()
    with open(f"{output}.log", "w+b") as log:
        process = subprocess.Popen(
            words(config, output), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
            cwd=os.path.dirname(output), start_new_session=True,
        )  # fmt: skip
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            status = process.wait(config["seconds"])
        except subprocess.TimeoutExpired:
            raise Fault(f"dlio_benchmark did not end in {config['seconds']} s; see limit_s of the profile") from None
        finally:
            for signum in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, signum)
                    process.wait(5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        if status:
            log.seek(max(0, log.tell() - 8000) if log.seek(0, os.SEEK_END) else 0)
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            raise Fault(f"dlio_benchmark ended with status {status}: {lines[-1].strip()[:300] if lines else 'no word'}")
    return time.monotonic() - began


def make(config, temporary):
    """Make the data set, unless it is there."""
    told = {key: config[key] for key in ("config", "configs", "files", "options")}
    path = os.path.join(config["folder"], MADE)
    try:
        with open(path) as file:
            there = json.load(file)
    except (OSError, ValueError):
        there = None
    if there == told:
        return {"made": False}
    for name in (MADE, "train"):
        whole = os.path.join(config["folder"], name)
        if os.path.isdir(whole):
            shutil.rmtree(whole)
        elif os.path.lexists(whole):
            os.remove(whole)
    call(config, f"{temporary}/made")
    subprocess.run(["sync", "-f", config["folder"]], timeout=600, check=False)
    with open(path, "w") as file:
        json.dump(told, file)
    return {"made": True}


def train(config, temporary):
    output = f"{temporary}/trained"
    seconds = call(config, output)
    try:
        with open(f"{output}/summary.json") as file:
            return {"summary": file.read(200000), "wall_s": seconds}
    except OSError as error:
        raise Fault(f"dlio_benchmark left no summary.json: {error.strerror}") from None


def version(config):
    """Version of the tool by its own Python; empty if that does not know it."""
    python = os.path.join(os.path.dirname(os.path.realpath(program(config, "dlio_benchmark"))), "python3")
    ask = "import importlib.metadata as m; print(m.version('dlio_benchmark'))"
    try:
        done = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()[:40]


def main(words):
    config = json.loads(words[0])
    document = {"rackproof_dlio": 1, "job": config["job"], "action": config["action"]}
    try:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as temporary:
            document |= {"node": socket.gethostname(), "version": version(config)}
            document |= (make if config["action"] == "make" else train)(config, temporary)
    except (Fault, OSError) as error:
        document["error"] = " ".join(str(error).split())
    print(json.dumps(document))
    return int("error" in document)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
