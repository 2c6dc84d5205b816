"""KVM is probed by booting a kernel: on some hosts /dev/kvm opens, but no guest boots."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rackproof.errors import LabError
from rackproof.lab.image import Image, cache_folder
from rackproof.lab.spec import Accel, accel_arguments

PROBE_S = 12.0
FIRST_LINE = b"Linux version"


def choose(requested: str, image: Image, say: Callable[[str], None]) -> Accel:
    """Resolve ``auto``. Raises LabError for an explicit ``kvm`` that does not boot the kernel."""
    if requested == "tcg":
        return "tcg"
    works = kvm_boots(image, say)
    if requested == "kvm" and not works:
        raise LabError("--accel kvm: /dev/kvm does not boot the lab's kernel here; use --accel tcg or auto")
    return "kvm" if works else "tcg"


def kvm_boots(image: Image, say: Callable[[str], None]) -> bool:
    """Boot the image's kernel under KVM until its first console line; the result is cached until the next reboot."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    cache = cache_folder() / "kvm-probe.json"
    key = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {image.name}"
    try:
        cached = json.loads(cache.read_text())
        if cached.get("key") == key:
            return bool(cached["boots"])
    except (OSError, ValueError, KeyError):
        cached = None  # absent or unreadable: probe
    say("probing KVM …")
    boots = _probe(image)
    cache.write_text(json.dumps({"key": key, "boots": boots}))
    say("KVM boots the kernel" if boots else "KVM does not boot the kernel here: plain emulation (slower)")
    return boots


def _probe(image: Image) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / "console"
        process = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", *accel_arguments("kvm"), "-m", "512", "-nodefaults", "-display", "none",
             "-serial", f"file:{console}", "-kernel", str(image.kernel), "-append", "console=ttyS0", "-no-reboot"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + PROBE_S
            while time.monotonic() < deadline and process.poll() is None:
                if console.exists() and FIRST_LINE in console.read_bytes():
                    return True
                time.sleep(0.2)
            return console.exists() and FIRST_LINE in console.read_bytes()
        finally:
            process.kill()
            process.wait(10)
