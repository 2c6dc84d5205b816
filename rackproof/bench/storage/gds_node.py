# mypy: ignore-errors
"""NVIDIA's gdsio on every GPU of this node at once: writes files from GPU memory, or reads them. Runs on the nodes.

Usage: python3 -I gds_node.py CONFIG, a JSON object: job (its name), action (write, read), folder, threads (of each GPU,
one file each), file_bytes, block_bytes, seconds (of a read). cuFile may not go through host memory: the node's
cufile.json is used with allow_compat_mode and force_compat_mode false, and so are the variables that override them
(NVIDIA, GPUDirect Storage troubleshooting guide, "Environment variables"). Prints one JSON line.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its own folder alone, not the working directory

from start_node import Fault

CONFIGURED = "/etc/cufile.json"
GPU = re.compile(r"(?m)^GPU (\d+): ")
COMPAT = re.compile(r'("(?:allow|force)_compat_mode"\s*:\s*)true')
DIRECT = {"CUFILE_ALLOW_COMPAT_MODE": "false", "CUFILE_FORCE_COMPAT_MODE": "false"}
WRITE_S = 7200
MARGIN_S = 60


def gdsio():
    installed = sorted(glob.glob("/usr/local/cuda*/gds/tools/gdsio"))
    path = shutil.which("gdsio") or (installed[-1] if installed else None)
    if path is None:
        raise Fault("gdsio is not installed")
    return path


def gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault(f"nvidia-smi: {error}") from None
    numbers = GPU.findall(listed.stdout)
    if listed.returncode or not numbers:
        raise Fault(f"nvidia-smi lists no GPU: {(listed.stderr or listed.stdout).strip()[:200]}")
    return [int(number) for number in numbers]


def strict(folder):
    """Path of the node's configuration of cuFile without its way around GPU memory."""
    text = "{}"
    if os.path.exists(CONFIGURED):
        with open(CONFIGURED) as file:
            text = COMPAT.sub(r"\1false", file.read())
    if not re.search(r'"allow_compat_mode"\s*:\s*false', text):
        text = '{"properties": {"allow_compat_mode": false}}'
    path = f"{folder}/cufile.json"
    with open(path, "w") as file:
        file.write(text)
    return path


def run(config, temporary):
    """Outputs and exit status of gdsio, by GPU."""
    program, environment = gdsio(), os.environ | DIRECT | {"CUFILE_ENV_PATH_JSON": strict(temporary)}
    reads, started, rows = config["action"] == "read", [], []
    try:
        for gpu in gpus():
            folder = f"{config['folder']}/gpu{gpu}"
            os.makedirs(folder, exist_ok=True)
            words = [program, "-D", folder, "-d", str(gpu), "-w", str(config["threads"]), "-s",
                     str(config["file_bytes"]), "-i", str(config["block_bytes"]), "-x", "0", "-I",
                     "0" if reads else "1"]  # fmt: skip
            words += ["-T", str(config["seconds"])] if reads else []
            started.append((gpu, folder, subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=temporary,
            )))  # fmt: skip
        for gpu, folder, process in started:
            text, _ = process.communicate(timeout=config["seconds"] + MARGIN_S if reads else WRITE_S)
            sizes = [os.path.getsize(path) for path in glob.glob(f"{folder}/gdsio.*")]
            rows.append({"gpu": gpu, "status": process.returncode, "text": text[-4000:], "sizes": sorted(sizes)})
    except subprocess.TimeoutExpired:
        raise Fault(f"gdsio does not end on GPU {gpu}") from None
    finally:
        for _, _, process in started:
            if process.poll() is None:
                process.kill()
    return rows


def main(words):
    config = json.loads(words[0])
    answer = {key: config[key] for key in ("job", "folder")}
    try:
        with tempfile.TemporaryDirectory() as temporary:
            answer["gpus"] = run(config, temporary)
    except (Fault, OSError) as error:
        answer["error"] = str(error)
    print(json.dumps({"rackproof_gds": 1} | answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
