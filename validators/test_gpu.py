"""GPUs as the driver reports them: number, model, firmware, modes, limits and clocks."""

from __future__ import annotations

from collections.abc import Iterator

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.gpu_generations import GPU_KINDS
from rackproof.parse.answer import STATUS
from rackproof.parse.nvidia_driver import (
    parse_bound,
    parse_kernel_module,
    parse_nccl_conf,
    parse_nvidia_devices,
    parse_parameters,
)
from rackproof.parse.nvidia_smi import ClockPair, Gpu, parse_nvidia_smi, parse_nvidia_smi_list
from rackproof.parse.text import version_numbers
from rackproof.validation import Unmeasured, announce, answered, check, expect, expect_all, read
from rackproof.validation.gpus import (
    DEVICES,
    KERNEL_MODULE,
    QUERY,
    driver_version,
    expect_each,
    expect_known,
    gpu_of,
    has_gpus,
    real_gpus,
    refusal,
    report,
    sets_key,
)

LIST = "nvidia-smi -L"
PARAMETERS = f"cat /proc/driver/nvidia/params{STATUS}"
NCCL = f"cat /etc/nccl.conf{STATUS}"
BOUND = (
    "for d in /sys/bus/pci/devices/*; do read -r v <$d/vendor; read -r c <$d/class; "
    'case "$v $c" in "0x10de 0x03"*) l=$(readlink $d/driver); echo "${d##*/} ${l##*/}";; esac; done; true'
    f"{STATUS}"
)

LIMITED = "applications_clocks_setting"
"""Throttle reason."""
POWER_TOLERANCE_W = 0.5
"""The driver rounds limits."""


@check(
    "gpu.count",
    reads="gpu.count",
    protects="A job for eight GPUs does not start, or runs on seven with the wrong batch size.",
    hint="lspci -d 10de: and dmesg for Xid 79 (fallen off the bus); power-cycle the node once, then exchange the GPU.",
)
def test_count(host: Host, arch: Architecture) -> None:
    if message := refusal(host):
        raise AssertionError(f"GPUs: expected {gpu_of(arch).count}, actual none: {message}")
    smi = parse_nvidia_smi(read(host, QUERY))
    expect(len(smi.gpus), gpu_of(arch).count, "GPUs")
    if smi.missing:
        raise AssertionError(f"expected details of all attached GPUs, actual {smi.missing} missing")
    if smi.attached_gpus is None:
        raise Unmeasured("nvidia-smi does not report how many GPUs are attached")


@check(
    "gpu.on_bus",
    reads="gpu.count",
    roles=("gpu",),
    when=real_gpus,
    protects="A GPU that has fallen off the bus kills its jobs, and often the node at the next access.",
    hint="lspci shows (rev ff) for it: power-cycle the node once, then check seat and power, then exchange the GPU.",
)
def test_on_bus(host: Host, arch: Architecture) -> None:
    gpu = gpu_of(arch)
    answer = answered(host, DEVICES, "lspci")
    devices = [d for d in parse_nvidia_devices(answer.body) if d.device_class in GPU_KINDS]
    gone = [device.address for device in devices if not device.answers]
    if gone:
        raise AssertionError(f"expected every GPU to answer on the bus, actual gone: {', '.join(gone)}")
    ids = [pci_id.lower() for pci_id in gpu.pci_ids]
    of_the_model = [device for device in devices if not ids or device.device in ids]
    expect(len(of_the_model), gpu.count, "GPUs on the PCI bus")


@check(
    "gpu.model",
    reads="gpu.model",
    protects="One GPU of a slower model delays every collective.",
    hint="Compare nvidia-smi -L with the delivery note.",
)
def test_model(host: Host, arch: Architecture) -> None:
    expect_each(host, gpu_of(arch).model, lambda gpu: gpu.name)


@check(
    "gpu.pci_ids",
    reads="gpu.pci_ids",
    protects="GPUs of one name exist with different memory and power; the PCI id distinguishes them.",
    hint="lspci -nn -d 10de:; compare with the delivery note.",
)
def test_pci_ids(host: Host, arch: Architecture) -> None:
    allowed = [pci_id.lower() for pci_id in gpu_of(arch).pci_ids]
    listed = " or ".join(allowed)
    expect_each(host, listed, lambda gpu: listed if gpu.pci_id in allowed else gpu.pci_id)


@check(
    "gpu.memory",
    reads="gpu.memory_mib",
    protects="A training job that fits the other GPUs runs out of memory on this one.",
    hint="nvidia-smi -q -d MEMORY; the cause is MIG or a smaller GPU model.",
)
def test_memory(host: Host, arch: Architecture) -> None:
    expected = gpu_of(arch).memory_mib
    if expected is None:
        raise Unmeasured("the architecture has no gpu.memory_mib")
    slack = expected * gpu_of(arch).memory_tolerance_pct / 100

    def within(gpu: Gpu) -> int | None:
        size = gpu.memory_total_mib
        return expected if size is not None and abs(size - expected) <= slack else size

    expect_each(host, expected, within)


@check(
    "gpu.driver",
    reads="gpu.driver",
    protects="Nodes with different drivers perform differently, and libraries built for one fail on another.",
    hint="Pin the driver's packages; after an upgrade the old module stays loaded until a reboot.",
)
def test_driver(host: Host, arch: Architecture) -> None:
    driver = driver_version(host)
    expected = gpu_of(arch).driver or ""
    if expected.startswith(">="):
        oldest = expected.removeprefix(">=").strip()
        if version_numbers("nvidia-smi", driver) < version_numbers("architecture", oldest):
            raise AssertionError(f"expected driver {oldest} or newer, actual {driver}")
        return
    expect(driver, expected, "driver")


@check(
    "gpu.kernel_module",
    reads="gpu.driver",
    roles=("gpu",),
    when=real_gpus,
    protects="After an upgrade without a reboot, libraries and kernel module differ and no program finds a GPU.",
    hint="Reboot; if that does not help, compare dkms status and modinfo nvidia with the library packages.",
)
def test_kernel_module(host: Host) -> None:
    announce(host, KERNEL_MODULE, QUERY)
    answer = answered(host, KERNEL_MODULE, "cat", good=(0, 1))
    if answer.status != 0:
        raise AssertionError("expected the kernel module nvidia, actual not loaded")
    module = parse_kernel_module(answer.body)
    if message := refusal(host):
        raise AssertionError(f"expected libraries of the kernel module's version {module.version}, actual {message}")
    expect(driver_version(host), module.version, "driver of nvidia-smi against the kernel module")


@check(
    "gpu.vbios",
    reads="gpu.vbios",
    protects="Another VBIOS has other clocks, power limits and bugs than the certified one.",
    hint="Install the server vendor's firmware bundle for the whole baseboard.",
)
def test_vbios(host: Host, arch: Architecture) -> None:
    expect_each(host, gpu_of(arch).vbios, lambda gpu: gpu.vbios)


@check(
    "gpu.inforom",
    reads="gpu.inforom",
    protects="The InfoROM records bad memory rows; a damaged one loses them.",
    hint="nvidia-smi -q; exchange a GPU with a corrupted InfoROM.",
)
def test_inforom(host: Host, arch: Architecture) -> None:
    expect_each(host, gpu_of(arch).inforom, lambda gpu: gpu.inforom)


@check(
    "gpu.uniform",
    reads="gpu",
    protects="GPUs with different firmware run at different clocks; the slowest limits all.",
    hint="Update the deviating GPU to the others' firmware; another part number is another product.",
)
def test_uniform(host: Host) -> None:
    gpus = report(host).gpus
    if not any(gpu.vbios for gpu in gpus):
        raise Unmeasured("nvidia-smi reports no VBIOS")
    kinds = {
        "VBIOS": {gpu.bus_id: gpu.vbios for gpu in gpus},
        "InfoROM": {gpu.bus_id: gpu.inforom for gpu in gpus},
        "part number": {gpu.bus_id: gpu.part_number for gpu in gpus},
        "PCI id": {gpu.bus_id: gpu.pci_id for gpu in gpus},
    }
    expect_all(problem for kind, values in kinds.items() for problem in _different(kind, values))


def _different(kind: str, values: dict[str, str | None]) -> Iterator[str]:
    """The most frequent value is expected of all GPUs. Ties: the first value wins."""
    listed = list(values.values())
    usual = max(listed, key=listed.count)
    odd = [f"{value or 'none'} on {bus}" for bus, value in values.items() if value != usual]
    if odd:
        yield f"{kind}: expected {usual or 'none'} on all {len(listed)} GPUs, actual {', '.join(odd)}"


@check(
    "gpu.ecc_mode",
    reads="gpu.ecc",
    protects="Without ECC a bit flip becomes a wrong result instead of an error.",
    hint="nvidia-smi -e 1, then reset the GPU or reboot.",
)
def test_ecc_mode(host: Host, arch: Architecture) -> None:
    expected = gpu_of(arch).ecc
    expect_each(host, expected, lambda gpu: _mode(expected, gpu.ecc, gpu.ecc_pending))


def _mode(expected: str | None, current: str | None, pending: str | None) -> str | None:
    """A mode that may change at the next reset; None where the driver does not report whether it will."""
    if current == expected and pending is None:
        return None
    changing = current is not None and pending not in (None, current)
    return f"{current} until a reset, then {pending}" if changing else current


@check(
    "gpu.persistence",
    reads="gpu.persistence",
    protects="Without it the driver deinitialises GPUs after each job, and the next job waits seconds.",
    hint="systemctl enable --now nvidia-persistenced.",
)
def test_persistence(host: Host, arch: Architecture) -> None:
    expect_each(host, gpu_of(arch).persistence, lambda gpu: gpu.persistence)


@check(
    "gpu.mig",
    reads="gpu.mig",
    protects="A GPU in MIG mode has no NVLink, and jobs get slices instead of whole GPUs.",
    hint="nvidia-smi -mig 0 (or 1), then reset the GPU.",
)
def test_mig(host: Host, arch: Architecture) -> None:
    expected = gpu_of(arch).mig
    expect_each(host, expected, lambda gpu: _mode(expected, gpu.mig, gpu.mig_pending))


@check(
    "gpu.mig_profiles",
    reads="gpu.mig_profiles",
    roles=("gpu",),
    when=sets_key("mig_profiles"),
    protects="MIG partitions are lost at boot, while the scheduler keeps handing out those in its configuration.",
    hint="systemctl status rackproof-gpu; nvidia-smi -L; nvidia-smi mig -lgip lists the GPU's profiles.",
)
def test_mig_profiles(host: Host, arch: Architecture) -> None:
    listed = parse_nvidia_smi_list(read(host, LIST))
    expect(len(listed), gpu_of(arch).count, "GPUs that nvidia-smi lists")
    expected = sorted(gpu_of(arch).mig_profiles or ())
    expect_all(
        f"partitions of GPU {gpu.index}: expected {', '.join(expected) or 'none'}, actual {', '.join(actual) or 'none'}"
        for gpu in listed
        if (actual := sorted(device.profile for device in gpu.mig)) != expected
    )


@check(
    "gpu.parameters",
    reads="gpu.parameters",
    protects="Options in modprobe.d apply at the next load of the driver; the loaded one may have others.",
    hint="Compare /proc/driver/nvidia/params with /etc/modprobe.d; rebuild the initramfs, then reboot.",
)
def test_parameters(host: Host, arch: Architecture) -> None:
    answer = answered(host, PARAMETERS, "cat", good=None)
    if answer.status != 0:
        raise Unmeasured("the kernel module nvidia is not loaded; see gpu.kernel_module")
    actual = parse_parameters(answer.body)
    expected = gpu_of(arch).parameters or {}
    unknown = [name for name in expected if name not in actual]
    expect_all(
        f"{name}: expected {value}, actual {actual[name]}"
        for name, value in expected.items()
        if name in actual and actual[name] != value
    )
    if unknown:
        raise Unmeasured(f"this driver has no option {', '.join(unknown)}")


@check(
    "gpu.nccl",
    reads="gpu.nccl",
    protects="Without these settings collectives use front-end NICs or a lossy traffic class, and are slow.",
    hint="See /etc/nccl.conf; NCCL_DEBUG=INFO shows a job's settings; environment and ~/.nccl.conf take precedence.",
)
def test_nccl(host: Host, arch: Architecture) -> None:
    answer = answered(host, NCCL, "cat", good=(0, 1))
    if answer.status != 0:
        raise AssertionError("/etc/nccl.conf: expected a file, actual none")
    actual = parse_nccl_conf(answer.body)
    expect_all(
        f"{key}: expected {value}, actual {actual.get(key, 'not set')}"
        for key, value in (gpu_of(arch).nccl or {}).items()
        if actual.get(key) != value
    )


@check(
    "gpu.bound",
    reads="gpu.driver",
    roles=("gpu",),
    when=real_gpus,
    protects="A GPU bound to nouveau or vfio-pci is not available to jobs.",
    hint="lspci -nnk -d 10de:; blacklist the other driver, rebuild the initramfs, reboot.",
)
def test_bound(host: Host, arch: Architecture) -> None:
    answer = answered(host, BOUND, "sh")
    bound = parse_bound(answer.body)
    if not bound:
        raise AssertionError("expected GPUs on the PCI bus, actual none")
    expect_all(
        f"{address}: expected driver nvidia, actual {name or 'none'}"
        for address, name in bound.items()
        if name != "nvidia"
    )
    if len(bound) < gpu_of(arch).count:
        raise AssertionError(f"expected {gpu_of(arch).count} GPUs bound to nvidia, actual {len(bound)}")


@check(
    "gpu.power_limit",
    reads="gpu.power_limit_w",
    roles=("gpu",),
    when=has_gpus,
    protects="A GPU with a lowered power limit is slower than others, under load only.",
    hint="nvidia-smi -pl; find what lowers it at boot: a service, the BMC, a power profile of the rack.",
)
def test_power_limit(host: Host, arch: Architecture) -> None:
    declared = gpu_of(arch).power_limit_w
    gpus = report(host).gpus
    limits = {gpu.bus_id: (gpu.power_limit_w, declared or gpu.default_power_limit_w) for gpu in gpus}
    expect_all(
        f"power limit of {bus}: expected {expected:g} W, actual {limit:g} W"
        for bus, (limit, expected) in limits.items()
        if limit is not None and expected is not None and abs(limit - expected) > POWER_TOLERANCE_W
    )
    expect_known({bus: None if None in pair else pair for bus, pair in limits.items()})


@check(
    "gpu.clocks",
    reads="gpu.clocks",
    protects="Clock limits left over from a test lower every result of the node.",
    hint="nvidia-smi -rgc, -rmc and -rac; find the service that limits them at boot.",
)
def test_clocks(host: Host, arch: Architecture) -> None:
    clocks = gpu_of(arch).clocks
    if clocks is None:
        raise Unmeasured("the architecture has no gpu.clocks")
    gpus = report(host).gpus
    problems, unknown = [], []
    for gpu in gpus:
        default = gpu.default_application_clocks_mhz
        application = gpu.application_clocks_mhz
        pairs = [
            ("highest SM clock", gpu.sm_clock_max_mhz, clocks.sm_max_mhz),
            ("highest memory clock", gpu.memory_clock_max_mhz, clocks.memory_max_mhz),
        ]
        if application is not None:
            usual = default or ClockPair(application.sm, application.memory)
            pairs += [
                ("SM clock of applications", application.sm, clocks.application_sm_mhz or usual.sm),
                ("memory clock of applications", application.memory, clocks.application_memory_mhz or usual.memory),
            ]
        elif clocks.application_sm_mhz or clocks.application_memory_mhz:
            unknown.append(gpu.bus_id)
        unknown += [gpu.bus_id for _, actual, expected in pairs if expected is not None and actual is None]
        problems += [
            f"{what} of {gpu.bus_id}: expected {expected:g} MHz, actual {actual:g} MHz"
            for what, actual, expected in pairs
            if expected is not None and actual is not None and expected != actual
        ]
        problems += _held_down(gpu)
        if LIMITED not in gpu.throttle_reasons_known:
            unknown.append(gpu.bus_id)
    expect_all(problems)
    expect_known(dict.fromkeys(unknown))


def _held_down(gpu: Gpu) -> list[str]:
    """Detect locked clocks (``nvidia-smi -lgc``): the driver reports them only as the throttle reason "applications
    clocks setting", which has no other cause if the application clock is the highest or unknown. An idle GPU may not
    report it; a benchmark shows it."""
    if LIMITED not in (gpu.throttle_reasons or ()):
        return []
    application = gpu.application_clocks_mhz
    if application is not None and application.sm != gpu.sm_clock_max_mhz:
        return []
    return [f"clocks of {gpu.bus_id}: expected no setting that limits them, actual {gpu.sm_clock_mhz or 0:g} MHz"]
