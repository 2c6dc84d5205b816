"""Operations of a version set. Each reads a node, changes what differs from the set, and verifies it."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof.configure.facts import FileStates, Marks
from rackproof.configure.files import REBOOT
from rackproof.configure.operation import Commands, ask, note, operation, record_reasons
from rackproof.configure.rollback.journal import file_line, hold_line
from rackproof.configure.rollback.run import carried_out, journal_here, journaled
from rackproof.configure.versions import downloads, facts, install, kernels, repositories
from rackproof.configure.versions.site import policy_here
from rackproof.configure.versions.state import differences
from rackproof.core.plan import Change
from rackproof.core.versions import LockedPackage
from rackproof.core.wording import some
from rackproof.errors import Refused


@operation()
def exact_packages(packages: Sequence[LockedPackage], family: str, earlier: Sequence[str] = ()) -> Commands:
    """Install exactly these versions in one transaction; no other package is removed or downgraded.

    + packages: names and versions of the version set
    + family: ``debian`` (apt) or ``rhel`` (dnf)
    + earlier: packages that earlier operations install; a plan assumes them installed, a run reads the node

    **Example:**

    .. code:: python

        versions.exact_packages(name="Driver", packages=locked("driver"), family="debian")
    """
    names = [package.name for package in packages]
    present = ask(facts.PackageStates, "the list of installed packages", names=names, family=family)
    due = list(packages) if state.is_executing else [package for package in packages if package.name not in earlier]
    if not due:
        host.noop(f"earlier operations install all {len(packages)} packages")
        return
    script, changes = install.plan_install(due, present, family, policy_here())
    yield from carried_out(script, changes, f"all {len(due)} packages are at their locked versions")


@operation()
def signing_keys(wanted: Sequence[repositories.Key], family: str, proxy: str | None = None) -> Commands:
    """Download the keys of repositories; refuse a key with another digest than the locked one, naming both digests.

    + wanted: keys with URL, sha256 and path
    + family: ``debian`` (apt) or ``rhel`` (dnf)
    + proxy: URL of a proxy for HTTP and HTTPS

    **Example:**

    .. code:: python

        versions.signing_keys(
            name="Repository keys", wanted=repositories.keys(platform.repositories, {}), family="debian"
        )
    """
    present = ask(facts.KeyDigests, "the repositories' keys", wanted=list(wanted))
    missing = [key for key in wanted if present.get(key.path) != key.sha256]
    changes = []
    for key in missing:
        actual = f"sha256 {present[key.path]}" if key.path in present else "not there"
        changes.append(Change(what=f"key of {key.repository}", why=f"{actual} -> sha256 {key.sha256}"))
    script = repositories.keys_script(missing, family, proxy) if missing else ""
    kept = [file_line(key.path, key.sha256) for key in missing]
    yield from carried_out(script, changes, f"all {len(wanted)} repository keys are the locked ones", kept)


@operation()
def held(packages: Sequence[LockedPackage], family: str) -> Commands:
    """Hold every package that is installed as locked, and verify the holds.

    A plan holds all of them, because earlier operations install missing packages.

    + packages: names and versions of the version set
    + family: ``debian`` (apt) or ``rhel`` (dnf)

    **Example:**

    .. code:: python

        versions.held(name="Holds", packages=locked("all"), family="rhel")
    """
    actual = ask(
        facts.PackageStates, "the list of held packages", names=[package.name for package in packages], family=family
    )
    missing = install.to_hold(packages, actual, family, all_there=not state.is_executing)
    script = install.hold_script(missing, family, policy_here()) if missing else ""
    changes = [Change(what=f"hold {package.name} {package.version}") for package in missing]
    kept = [hold_line(package.name, family) for package in missing]
    yield from carried_out(script, changes, "everything that is installed is held", kept)


@operation()
def declared_held(names: Sequence[str], family: str) -> Commands:
    """Hold packages at their installed versions. Refuses a node where one is not installed.

    A plan holds all of them, because earlier operations install missing packages.

    + names: packages, by the names of the node's distribution
    + family: ``debian`` (apt) or ``rhel`` (dnf)

    **Example:**

    .. code:: python

        versions.declared_held(name="Declared holds", names=["libnccl2"], family="debian")
    """
    actual = ask(facts.PackageStates, "the list of held packages", names=list(names), family=family)
    there = [
        LockedPackage(name, version, "system.holds")
        for name in names
        for version in actual.installed.get(name, () if state.is_executing else ("",))
    ]
    missing = install.to_hold(there, actual, family, all_there=True)
    if missing:
        unheld = list(dict.fromkeys(package.name for package in missing))
        record_reasons(f"hold {name}" for name in unheld)
        kept = [hold_line(name, family) for name in unheld]
        yield StringCommand(journal_here().before(kept, install.hold_script(missing, family, policy_here())))
    absent = [name for name in names if name not in actual.installed]
    if absent and state.is_executing:
        if waiting := sorted(mark for mark in host.get_fact(Marks) or () if mark.startswith(REBOOT)):
            # Packages that are installed only after the reboot must not prevent it.
            note(f"held after the reboot ({'; '.join(waiting)}): {', '.join(absent)}")
            return
        raise Refused(
            f"system.holds: not installed, so not held: {', '.join(absent)}; name them in system.packages or in a"
            " version set, or remove them from the architecture's system.holds"
        )
    elif not missing:
        host.noop(f"all {len(names)} packages are held")


@operation()
def boot_kernel(release: str, family: str) -> Commands:
    """Make the locked kernel the default, and leave a reboot mark when another kernel runs.

    + release: kernel release, as ``uname -r`` prints it
    + family: ``debian`` (apt) or ``rhel`` (dnf)

    **Example:**

    .. code:: python

        versions.boot_kernel(name="Kernel of the next start", release="6.8.0-87-generic", family="debian")
    """
    actual = ask(facts.Kernels, "the installed kernels", release=release)
    if not state.is_executing:
        actual = kernels.with_kernel(actual, release)
    plan = kernels.plan_boot(release, actual, family)
    runs = actual.running == release
    yield from journaled(plan, f"kernel {release} {'runs' if runs else 'starts with the next reboot'}")


@operation()
def dkms_modules(modules: Sequence[str], release: str, family: str, earlier: Sequence[str] = ()) -> Commands:
    """Build DKMS modules for the locked kernel, which may run only after a reboot.

    + modules: as ``dkms status`` names them
    + release: kernel, as ``uname -r`` prints it
    + family: ``debian`` (apt) or ``rhel`` (dnf)
    + earlier: modules that earlier operations build, as in ``exact_packages``

    **Example:**

    .. code:: python

        versions.dkms_modules(
            name="Driver: modules", modules=["nvidia"], release="6.8.0-87-generic", family="debian"
        )
    """
    actual = ask(facts.Kernels, "the DKMS modules", release=release)
    due = list(modules) if state.is_executing else [module for module in modules if module not in earlier]
    plan = kernels.plan_dkms(due, release, actual, family)
    yield from journaled(plan, f"{', '.join(modules)}: installed for kernel {release}")


@operation()
def read_back(packages: Sequence[LockedPackage], family: str, hold: bool = True) -> None:
    """Verify packages: refuse a node where one is not at its version, or not held. Changes nothing.

    + packages: names and versions of the version set
    + family: ``debian`` (apt) or ``rhel`` (dnf)
    + hold: whether they must be held

    **Example:**

    .. code:: python

        versions.read_back(name="Read back", packages=locked("all"), family="debian")
    """
    actual = ask(
        facts.PackageStates,
        "the list of installed packages",
        names=[package.name for package in packages],
        family=family,
    )
    wrong = differences(packages, actual, family, hold)
    # While planning, the packages may not be installed yet.
    if wrong and state.is_executing:
        raise Refused(f"not as the version set says: {some(wrong, 5, '; ')}")
    else:
        host.noop(f"{len(packages)} packages are as the version set says")


@operation()
def modules_in_force(modules: Sequence[str], release: str) -> None:
    """Refuse a node where the locked kernel lacks a DKMS module, or does not run and no reboot is pending.

    Changes nothing.

    + modules: as ``dkms status`` names them
    + release: kernel, as ``uname -r`` prints it

    **Example:**

    .. code:: python

        versions.modules_in_force(name="Modules", modules=["nvidia"], release="6.8.0-87-generic")
    """
    actual = ask(facts.Kernels, "the running kernel", release=release)
    missing = kernels.unbuilt(modules, release, actual)
    if missing and state.is_executing:
        raise Refused(f"kernel {release}: DKMS modules not installed for it: {', '.join(missing)}")
    elif actual.running != release and f"reboot:{kernels.reboot_reason(release)}" not in actual.pending:
        if state.is_executing:
            raise Refused(f"kernel {release} is locked, {actual.running} runs, and no reboot is pending")
    else:
        host.noop(f"{len(modules)} DKMS modules are installed for kernel {release}")


@operation()
def placed_files(wanted: Sequence[downloads.Placed], proxy: str | None = None) -> Commands:
    """Download missing and different files. A download with another digest than the locked one is refused.

    + wanted: files with URL, sha256, path and mode
    + proxy: URL of a proxy for HTTP and HTTPS

    **Example:**

    .. code:: python

        versions.placed_files(name="Files", wanted=plan.placed_files(platform, machine, inputs))
    """
    present = ask(FileStates, "the files of the version set", paths=[file.path for file in wanted], texts=[])
    wrong = downloads.differences(wanted, present)
    script = downloads.script(list(wrong), proxy) if wrong else ""
    changes = [Change(what=reason) for reason in wrong.values()]
    kept = [file_line(file.path, file.sha256) for file in wrong]
    yield from carried_out(script, changes, f"all {len(wanted)} files are the locked ones", kept)


@operation()
def placed_files_read_back(wanted: Sequence[downloads.Placed]) -> None:
    """Refuse a node where a file is not the locked one. Changes nothing.

    + wanted: files with URL, sha256, path and mode

    **Example:**

    .. code:: python

        versions.placed_files_read_back(name="Files", wanted=files)
    """
    present = ask(FileStates, "the files of the version set", paths=[file.path for file in wanted], texts=[])
    wrong = downloads.differences(wanted, present)
    # While planning, the files may not be installed yet.
    if wrong and state.is_executing:
        raise Refused(f"not as the version set says: {'; '.join(wrong.values())}")
    else:
        host.noop(f"{len(wanted)} files are as the version set says")
