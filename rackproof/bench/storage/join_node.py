# mypy: ignore-errors
"""Mounts a storage once more, as a node that joins does, and reads from it. Runs on the nodes.

Usage: python3 -I join_node.py CONFIG, a JSON object: job (its name), action (plant, join), file (its path below the
mount point), seed, point (the declared mount), own (the new one), quiet_s. ``plant`` writes the file, as
the account that measures. ``join``, by root, counts what the node's drives and local file systems get: in ``quiet_s``
seconds in which nothing is done, and then from the mount to the end of the first read. The declared mount stays as it
is. Prints one JSON line.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

BLOCK = 4096
FILE_BYTES = 65536
MOUNT_S = 60
LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "vfat", "tmpfs", "bcachefs", "nilfs2", "jfs"}
NOT_TAKEN = re.compile(
    r"(addr|clientaddr|mountaddr|mountport|mountproto|mountvers|local_lock|fsc|secret|nofail|noauto|_netdev|bg|seclabel"
    r"|relatime|ro|rw|x-[^=,]*)(=|$)"
)
"""Options that the kernel shows and a mount does not take, and those for the start of the node."""
OWN = {"nfs": "nosharecache", "nfs4": "nosharecache", "ceph": "noshare"}
"""Options that give a mount pages of its own."""


class Fault(Exception):
    """One line for the user."""


def contents(config):
    return hashlib.shake_256(config["seed"].encode()).digest(FILE_BYTES)


def plant(config):
    with open(f"{config['point']}/{config['file']}", "wb") as file:
        file.write(contents(config))
        file.flush()
        os.fsync(file.fileno())
    return {}


def unescaped(text):
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mounts():
    """Mount point, type, source and options of all mounts, in order."""
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.rstrip("\n").partition(" - ")
            fstype, source, options = right.split(" ", 2)
            words = left.split(" ")
            yield unescaped(words[4]), fstype, unescaped(source), f"{words[5]},{options}"


def unit_of(point):
    """Source, type and options in the unit of systemd that mounts there, also one of /etc/fstab; they name files of
    secrets, which the kernel does not show. Empty without a unit."""
    try:
        ask = ["systemd-escape", "--path", "--suffix=mount", point]
        name = subprocess.run(ask, capture_output=True, text=True, timeout=MOUNT_S).stdout.strip()
        ask = ["systemctl", "show", "--value", "--property=FragmentPath", name]
        path = subprocess.run(ask, capture_output=True, text=True, timeout=MOUNT_S).stdout.strip()
        with open(path) as file:
            lines = [line.strip().partition("=") for line in file]
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {key: value for key, _, value in lines if key in ("What", "Type", "Options")}


def declared(config):
    """Type, source and options for ``mount``: those of the unit, else the kernel's."""
    seen = [mount for mount in mounts() if mount[0] == config["point"]]
    if not seen:
        raise Fault(f"{config['point']} is not mounted")
    _, fstype, source, options = seen[-1]
    unit = unit_of(config["point"])
    if unit.get("Type", "").removesuffix("4") == fstype.removesuffix("4") and unit.get("What"):
        source, options = unit["What"], unit.get("Options", "")
    kept = [option for option in options.split(",") if option and not NOT_TAKEN.match(option)]
    return fstype, source, list(dict.fromkeys([*kept, *filter(None, [OWN.get(fstype)])]))


def written():
    """Bytes written to each drive of the node since its start."""
    counts = {}
    for name in sorted(os.listdir("/sys/block") if os.path.isdir("/sys/block") else ()):
        if os.path.exists(f"/sys/block/{name}/device"):
            with open(f"/sys/block/{name}/stat") as file:
                counts[name] = int(file.read().split()[6]) * 512
    return counts


def used():
    """Bytes in use on each file system of the node, also of those in memory."""
    sizes, devices = {}, set()
    for point, fstype, _, _ in mounts():
        if fstype not in LOCAL:
            continue
        try:
            device, state = os.stat(point).st_dev, os.statvfs(point)
        except OSError:
            continue
        if device not in devices:
            devices.add(device)
            sizes[point] = (state.f_blocks - state.f_bfree) * state.f_frsize
    return sizes


def counted():
    """After everything is on the drives that was written."""
    os.sync()
    return {"written": written(), "used": used()}


def unmount(own):
    if any(point == own for point, *_ in mounts()):
        for words in (["umount", own], ["umount", "-l", own]):
            try:
                if subprocess.run(words, capture_output=True, timeout=MOUNT_S).returncode == 0:
                    break
            except subprocess.TimeoutExpired:
                continue
    if os.path.isdir(own):
        os.rmdir(own)


def join(config):
    own = config["own"]
    fstype, source, options = declared(config)
    unmount(own)
    os.mkdir(own, 0o755)
    try:
        first = counted()
        time.sleep(config["quiet_s"])
        before, began = counted(), time.monotonic()
        words = ["mount", "-t", fstype, "-o", ",".join(options) or "defaults", source, own]
        done = subprocess.run(words, capture_output=True, text=True, timeout=MOUNT_S, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Fault(f"{' '.join(words[:3])}: {(done.stderr or done.stdout).strip()[:200] or done.returncode}")
        mounted = time.monotonic()
        descriptor = os.open(f"{own}/{config['file']}", os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        start = os.pread(descriptor, BLOCK, 0)
        read = time.monotonic()
        after, ended = counted(), time.monotonic()
        digest = hashlib.sha256(start)
        with open(descriptor, "rb") as file:
            file.seek(len(start))
            while part := file.read(1 << 20):
                digest.update(part)
        shown = [list(mount[:3]) for mount in mounts() if mount[0] in (own, config["point"])]
        return {
            "quiet_s": config["quiet_s"], "first": first, "before": before, "after": after, "mounts": shown,
            "mount_s": mounted - began, "read_s": read - began, "join_s": ended - began, "sha256": digest.hexdigest(),
        }  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Fault(f"mount -t {fstype} did not end in {MOUNT_S} s") from None
    finally:
        unmount(own)


def main(words):
    config = json.loads(words[0])
    document = {"rackproof_join": 1, "job": config["job"], "action": config["action"]}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        document |= (plant if config["action"] == "plant" else join)(config)
    except (Fault, OSError) as error:
        document["error"] = " ".join(str(error).split())
    print(json.dumps(document))
    return int("error" in document)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
