"""Build the disk image of the virtual rack, once per recipe, with or without root.

``mmdebstrap`` makes the tree; ``mke2fs -d`` makes a file system of it without a mount or a loop device. Both run
inside mmdebstrap's user namespace where the caller is not root.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from rackproof.errors import LabError

BUILD_TIMEOUT_S = 1800
IMAGE_FORMAT = "7"
"""Raised when this module makes a different image of the same recipe."""

_TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "tar": "tar"}

MODULES = "/usr/local/lib/rackproof/initramfs-modules"
BOOT_LOADER = "/etc/default/grub"
BLACKLIST = "/etc/modprobe.d/rackproof-lab.conf"
PAM = "etc/pam.d"
GENERATORS = "etc/systemd/system-generators"
_MANIFEST = "manifest.tsv"


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: ``disk`` is a raw ext4 file system without a partition table, used as a backing file."""

    folder: Path
    recipe: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def disk(self) -> Path:
        return self.folder / "root.img"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"

    def manifest(self) -> list[tuple[str, str]]:
        """Package names and exact versions, sorted by name."""
        lines = (self.folder / _MANIFEST).read_text().splitlines()
        return [(name, version) for name, version in (line.split("\t") for line in lines)]


def read_recipe() -> tuple[dict[str, Any], str]:
    """The recipe that ships with the kit, and the name of the image that it makes."""
    text = files("rackproof.lab").joinpath("recipe.yaml").read_text()
    digest = hashlib.sha256(f"{IMAGE_FORMAT}\n{text}".encode()).hexdigest()
    recipe: dict[str, Any] = yaml.safe_load(text)
    return recipe, f"{recipe['suite']}-{digest[:16]}"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/rackproof`` or ``~/.cache/rackproof``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rackproof"


def find_image() -> Image | None:
    """The image of the present recipe, or None when it has not been built."""
    recipe, name = read_recipe()
    folder = cache_folder() / "images" / name
    return Image(folder, recipe) if (folder / _MANIFEST).is_file() else None


def ensure_image(say: Callable[[str], None]) -> Image:
    """Return the image, building it first when there is none; a second caller waits for the first."""
    if image := find_image():
        return image
    missing = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise LabError(f"the image cannot be built: install {' '.join(missing)} (apt-get install, or `make setup`)")
    recipe, name = read_recipe()
    root = cache_folder() / "images"
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / f".{name}.lock"):
        if image := find_image():
            return image
        say(f"building image {name} (Debian {recipe['suite']}; a few minutes, once)")
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=root) as work:
            _build(recipe, Path(work), say)
            target = root / name
            if target.exists():  # left by a build that was killed before its manifest
                shutil.rmtree(target)
            (Path(work) / "image").rename(target)
    image = find_image()
    if image is None:
        raise LabError(f"the image {name} was built and is not there; remove {root} and try again")
    return image


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(recipe: dict[str, Any], work: Path, say: Callable[[str], None]) -> None:
    out = work / "image"
    out.mkdir()
    overlay = work / "files"
    _write_tree(overlay, recipe)
    tar = work / "root.tar"
    command = [
        "mmdebstrap",
        f"--variant={recipe['variant']}",
        f"--components={' '.join(recipe['components'])}",
        "--aptopt=Acquire::Languages none",
        "--aptopt=Acquire::Retries 3",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe["dpkg_exclude"]),
        # Package lists stay in: reading them anew costs a minute under emulation. The deploys renew them when old.
        "--skip=cleanup/apt/lists",
        "--dpkgopt=force-confold",  # what the recipe writes stays when a package asks
        f"--include={','.join(recipe['packages'])}",
        f"--customize-hook=copy-in {overlay}/etc {overlay}/usr /",
        *(f'--customize-hook=ln -sf /dev/null "$1/etc/systemd/system/{unit}"' for unit in recipe["masked_units"]),
        *(
            f'--customize-hook=mkdir -p "$1/{GENERATORS}" && ln -sf /dev/null "$1/{GENERATORS}/{name}"'
            for name in recipe["masked_generators"]
        ),
        f'--customize-hook=chroot "$1" systemctl disable {" ".join(recipe["disabled_units"])}',
        f'--customize-hook=chroot "$1" systemctl enable {" ".join(recipe["enabled_units"])}',
        *(
            f"--customize-hook=sed -i 's/^@include common-session$/&-noninteractive/' \"$1/{PAM}/{name}\""
            for name in recipe["logins_without_session"]
        ),
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id; touch "$1/etc/machine-id"',
        f"--customize-hook=chroot \"$1\" dpkg-query -W -f='${{Package}}\\t${{Version}}\\n' > {out / _MANIFEST}.part",
        '--customize-hook=chroot "$1" /usr/local/sbin/rackproof-initramfs /boot/rackproof.img',
        f'--customize-hook=cp -L "$1/vmlinuz" {out}/vmlinuz && cp "$1/boot/rackproof.img" {out}/initrd.img',
        # As systemd does when it has brought /etc and /var up to date: the first boot has nothing to catch up with.
        '--customize-hook=touch "$1/etc/.updated" "$1/var/.updated"',
        recipe["suite"],
        str(tar),
        *(recipe["sources"] or ()),
    ]
    _run(command, work / "mmdebstrap.log", say, "installing packages")
    disk = out / "root.img"
    script = textwrap.dedent(
        f"""
        set -e
        mkdir {work}/tree
        tar -C {work}/tree -xf {tar}
        mke2fs -q -t ext4 -O ^metadata_csum -E nodiscard -L rp-root -d {work}/tree {disk} {recipe["disk_gib"]}G
        rm -rf {work}/tree
        """
    )
    _run(_as_root(["sh", "-c", script]), work / "mke2fs.log", say, "making the file system")
    manifest = sorted((out / f"{_MANIFEST}.part").read_text().splitlines())
    (out / f"{_MANIFEST}.part").unlink()
    (out / _MANIFEST).write_text("\n".join(manifest) + "\n")


def _as_root(command: list[str]) -> list[str]:
    return command if os.geteuid() == 0 else ["mmdebstrap", "--unshare-helper", *command]


def _run(command: list[str], log: Path, say: Callable[[str], None], what: str) -> None:
    say(f"  {what}")
    with log.open("wb") as handle:
        try:
            completed = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=handle, stderr=subprocess.STDOUT,
                timeout=BUILD_TIMEOUT_S, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"building the image: {what} took more than {BUILD_TIMEOUT_S} s") from None
    if completed.returncode != 0:
        tail = log.read_text(errors="replace").strip().splitlines()[-12:]
        raise LabError(f"building the image: {what} failed:\n  " + "\n  ".join(tail))


def _write_tree(overlay: Path, recipe: dict[str, Any]) -> None:
    """Files of the image, in a folder that mmdebstrap copies in."""
    modules = {MODULES: "\n".join(recipe["initramfs_modules"]) + "\n"}
    loader = {BOOT_LOADER: boot_loader_defaults(recipe["kernel_arguments"])}
    blacklist = {BLACKLIST: "".join(f"blacklist {module}\n" for module in recipe["blacklist"])}
    for path, text in {**recipe["files"], **modules, **loader, **blacklist}.items():
        target = overlay / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if text.startswith("#!") else 0o644)


def boot_loader_defaults(arguments: list[str]) -> str:
    """``/etc/default/grub`` of a guest: ``update-grub`` then writes what the guest was started with, and what is
    added to it. The root device is no argument of the menu's: the initramfs knows it."""
    common = " ".join(argument for argument in arguments if argument != "rw" and not argument.startswith("root="))
    lines = {
        "GRUB_DEFAULT": "0",
        "GRUB_TIMEOUT": "0",
        "GRUB_DISTRIBUTOR": "rackproof",
        "GRUB_CMDLINE_LINUX_DEFAULT": "",
        "GRUB_CMDLINE_LINUX": common,
        "GRUB_TERMINAL": "console",
        "GRUB_DISABLE_LINUX_UUID": "true",
        "GRUB_DISABLE_OS_PROBER": "true",
        "GRUB_DISABLE_RECOVERY": "true",
        "GRUB_DISABLE_SUBMENU": "true",
    }
    return "".join(f'{name}="{value}"\n' for name, value in lines.items())
