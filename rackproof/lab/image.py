"""Build the disk image of the virtual rack, once per recipe, as root or not.

``mmdebstrap`` makes the tree, ``mke2fs -d`` the file system, without a mount or a loop device. Without root both run
in mmdebstrap's user namespace.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackproof.errors import LabError
from rackproof.lab.recipe import read_recipe

BUILD_TIMEOUT_S = 1800

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


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/rackproof`` or ``~/.cache/rackproof``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rackproof"


def find_image(release: str) -> Image | None:
    """Image of the current recipe; None if it has not been built."""
    recipe, name = read_recipe(release)
    folder = cache_folder() / "images" / name
    return Image(folder, recipe) if (folder / _MANIFEST).is_file() else None


def ensure_image(release: str, say: Callable[[str], None]) -> Image:
    """Return the image, built if absent. A second caller waits for the first."""
    if image := find_image(release):
        return image
    missing = [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise LabError(f"the image cannot be built: install {' '.join(missing)} (apt-get install, or `make setup`)")
    recipe, name = read_recipe(release)
    root = cache_folder() / "images"
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / f".{name}.lock"):
        if image := find_image(release):
            return image
        say(f"building image {name} (Debian {release}; a few minutes, once)")
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=root) as work:
            _build(release, recipe, Path(work), say)
            target = root / name
            if target.exists():  # a killed build without a manifest
                shutil.rmtree(target)
            (Path(work) / "image").rename(target)
    image = find_image(release)
    if image is None:
        raise LabError(f"{root / name}: the image was built, but is absent; remove {root} and try again")
    return image


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(release: str, recipe: dict[str, Any], work: Path, say: Callable[[str], None]) -> None:
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
        # Package lists stay: reading them again takes a minute under emulation. Deploys update them when old.
        "--skip=cleanup/apt/lists",
        "--skip=cleanup/apt/cache",  # or apt's index of them, which takes 20 s there, is removed at the end
        "--dpkgopt=force-confold",  # the recipe's files win over the packages'
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
        # The index has the lists' times, and mmdebstrap takes those back that are later than its start.
        "--customize-hook=find \"$1/var/lib/apt/lists\" -type f -exec touch -d '1 hour ago' {} +",
        '--customize-hook=chroot "$1" apt-get clean && chroot "$1" apt-cache gencaches',
        # As systemd writes them after an update of /etc and /var: the first boot does not repeat it.
        '--customize-hook=touch "$1/etc/.updated" "$1/var/.updated"',
        release,
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


def _run(command: list[str], log: Path, say: Callable[[str], None], title: str) -> None:
    say(f"  {title}")
    with log.open("wb") as handle:
        try:
            completed = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=handle, stderr=subprocess.STDOUT,
                timeout=BUILD_TIMEOUT_S, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"building the image: {title} took more than {BUILD_TIMEOUT_S} s; see {log}") from None
    if completed.returncode != 0:
        tail = log.read_text(errors="replace").strip().splitlines()[-12:]
        raise LabError(f"building the image: {title} failed:\n  " + "\n  ".join(tail))


def _write_tree(overlay: Path, recipe: dict[str, Any]) -> None:
    """Write the image's files into a folder that mmdebstrap copies."""
    modules = {MODULES: "\n".join(recipe["initramfs_modules"]) + "\n"}
    loader = {BOOT_LOADER: boot_loader_defaults(recipe["kernel_arguments"])}
    blacklist = {BLACKLIST: "".join(f"blacklist {module}\n" for module in recipe["blacklist"])}
    for path, text in {**recipe["files"], **modules, **loader, **blacklist}.items():
        target = overlay / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if text.startswith("#!") else 0o644)


def boot_loader_defaults(arguments: list[str]) -> str:
    """``/etc/default/grub``: ``update-grub`` writes the arguments that the guest started with, and later additions.

    Without ``root=``: the initramfs mounts the root device.
    """
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
