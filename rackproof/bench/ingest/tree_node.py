# mypy: ignore-errors
"""Writes a tree of files through a protocol, and hashes it over mounts. Runs on the nodes; needs nothing of rackproof.

Usage: python3 -I tree_node.py write|remove|read SPEC
SPEC is JSON: seed, files, max_bytes; to write and remove also ``way`` (mount, smb, hdfs) with folder, or share, folder
and login (a file), or url and user; to read ``folders``, one for each mount. SMB needs ``smbclient``.

The contents of a file follow from seed and number, so the reader of the answers knows their hashes and trusts no
writer. The seed is new in each run: files of an earlier one prove nothing. Prints one JSON line; errors are in
``error``, with exit status 1.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

MARK = "rackproof_tree"
ASK_S = 60  # for one request
EDGES = (0, 1, 4095, 4096, 4097, 65536, 65537)


class Fault(Exception):
    """One line for the user."""


def path_of(number):
    """Below the tree's folder, with a blank and a letter outside ASCII."""
    return f"part-{number % 8}/file {number:05d} ä.dat"


def size_of(spec, number):
    drawn = hashlib.sha256(f"size {spec['seed']} {number}".encode()).digest()
    own = EDGES[number] if number < len(EDGES) else int.from_bytes(drawn[:6], "big") % (spec["max_bytes"] + 1)
    return min(own, spec["max_bytes"])


def contents(spec, number):
    return hashlib.shake_256(f"{spec['seed']} {number}".encode()).digest(size_of(spec, number))


def plant(spec, folder):
    """Write all files below a folder of this node, synchronised."""
    for number in range(spec["files"]):
        path = os.path.join(folder, path_of(number))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(contents(spec, number))
            file.flush()
            os.fsync(file.fileno())


# Ways into a storage


def smb(spec, commands):
    way = spec["way"]
    login = ["-A", way["login"]] if way["login"] else ["-N"]
    done = subprocess.run(
        ["smbclient", way["share"], *login, "-c", "; ".join(commands)], capture_output=True, check=False, timeout=3600
    )
    if done.returncode:
        words = (done.stdout + done.stderr).decode(errors="replace").split("\n")
        raise Fault(f"smbclient: {' '.join(filter(None, words))[-300:] or done.returncode}")


def by_smb(spec):
    way = spec["way"]
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as local:
        plant(spec, local)
        smb(spec, [
            f'mkdir "{way["folder"]}"', f'mkdir "{way["folder"]}/tree-{spec["seed"]}"',
            f'cd "{way["folder"]}/tree-{spec["seed"]}"', f'lcd "{local}"', "prompt OFF", "recurse ON", "mput *",
        ])  # fmt: skip


class _Stay(urllib.request.HTTPRedirectHandler):
    """WebHDFS names the place of the data; it is asked by the same method."""

    def redirect_request(self, *_):
        return None


def hdfs(spec, method, path, query, data=None):
    way = spec["way"]
    query = urllib.parse.urlencode({**query, "user.name": way["user"]})
    url = f"{way['url']}/{urllib.parse.quote(path)}?{query}"
    opener = urllib.request.build_opener(_Stay)
    for attempt in (0, 1):
        request = urllib.request.Request(url, data=data if attempt else None, method=method)  # noqa: S310
        request.add_header("Content-Type", "application/octet-stream")
        try:
            with opener.open(request, timeout=ASK_S) as answer:
                if attempt or data is None:
                    return
                raise Fault(f"WebHDFS: {path}: expected another place for the data, actual status {answer.status}")
        except urllib.error.HTTPError as error:
            url = error.headers.get("Location", "")
            if error.code != 307 or not url or attempt:
                raise Fault(
                    f"WebHDFS: {path}: status {error.code}: {error.read(300).decode(errors='replace')}"
                ) from None
        except (OSError, ValueError) as error:
            raise Fault(f"WebHDFS: {path}: {error}") from None


def by_hdfs(spec):
    for number in range(spec["files"]):
        path = f"tree-{spec['seed']}/{path_of(number)}"
        hdfs(spec, "PUT", path, {"op": "CREATE", "overwrite": "false"}, contents(spec, number))


# Commands


def write(spec):
    if spec["way"]["by"] == "mount":
        plant(spec, spec["way"]["folder"])
    else:
        {"smb": by_smb, "hdfs": by_hdfs}[spec["way"]["by"]](spec)
    sizes = [size_of(spec, number) for number in range(spec["files"])]
    return {"files": len(sizes), "bytes": sum(sizes)}


def remove(spec):
    way, name = spec["way"], f"tree-{spec['seed']}"
    if way["by"] == "mount":
        shutil.rmtree(way["folder"])
    elif way["by"] == "smb":
        smb(spec, [f'cd "{way["folder"]}"', f'deltree "{name}"'])
    else:
        hdfs(spec, "DELETE", name, {"op": "DELETE", "recursive": "true"})
    return {}


def read(spec):
    """sha256 of each file over each mount, or why it has none."""
    hashes = []
    for folder in spec["folders"]:
        for number in range(spec["files"]):
            digest = hashlib.sha256()
            try:
                with open(os.path.join(folder, path_of(number)), "rb") as file:
                    while data := file.read(1 << 20):
                        digest.update(data)
            except FileNotFoundError:
                hashes.append("no such file")
            except OSError as error:
                hashes.append(f"{error.strerror}")
            else:
                hashes.append(digest.hexdigest())
    return {"hashes": hashes}


def main(words):
    action, spec = words[0], json.loads(words[1])
    os.umask(0o022)
    try:
        answer = {"write": write, "remove": remove, "read": read}[action](spec)
    except (OSError, Fault, subprocess.SubprocessError) as error:
        own = isinstance(error, OSError) and error.strerror
        place = f"{error.filename}: " if own and error.filename else ""
        answer = {"error": f"{place}{error.strerror}" if own else str(error)}
    print(json.dumps({MARK: 1, "action": action, "node": socket.gethostname(), "at": time.time()} | answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
