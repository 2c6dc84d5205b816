"""What a DGX H100 prints where the written HGX H200 prints its own."""

from __future__ import annotations

from typing import Final

MORE_PACKAGES: Final = ("fio", "infiniband-diags", "iperf3", "openmpi-bin")

WORDS: Final = (
    (r"NVIDIA H200", "NVIDIA H100 80GB HBM3"),
    (r"(?i)2335(?=10de|-885)|(?<=10de:)2335|(?<=0x)2335", "2330"),
    (r"143771 MiB", "81559 MiB"),
    (r"3201 MHz", "2619 MHz"),
    # adapters: InfiniBand, 8 for computing and 2 for storage
    (r"\bmlx5_([0-7])\b", r"mlx5_rail\1"),
    (r"(?m)^(mlx5_(?:rail\d|[89])/ports/1)/link_layer:Ethernet$", r"\1/link_layer:InfiniBand"),
    (r"(?m)^(mlx5_[89]/ports/1/rate):.*$", r"\1:400 Gb/sec (4X NDR)"),
    (r"(?m)^(mlx5_(?:rail\d|[89])/ports/1/)lid:0x0$", r"\1lid:0x11"),
    (r"(?m)^(mlx5_(?:rail\d|[89])/ports/1/)sm_lid:0x0$", r"\1sm_lid:0x1"),
    (r"(?m)^((?:rail|stor)\d)/type:1$", r"\1/type:32"),
    (r"(?m)^((?:rail|stor)\d)/mtu:9000$", r"\1/mtu:4092"),
    (r"(\"ifname\":\"(?:rail|stor)\d\",[^}]*?\"mtu\":)9000", r"\g<1>4092"),
    # the second port of the in-band network
    (r"(?m)^eno1/speed:25000$", "eno1/speed:100000"),
    (r"(?m)^eno1(/.*)$", r"\g<0>\neno2\1"),
    (r"(?m)^eno2/ifindex:2$", "eno2/ifindex:3"),
    (r"(?m)^(eno2/device/uevent:PCI_SLOT_NAME=0000:04:00)\.0$", r"\1.1"),
    # two drives for the system, of another size
    (r"Micron_7450_MTFDKBG960TFR", "Micron_7450_MTFDKBG1T9TFR"),
    (r"(namespace nvme[01]n1) 1875385008", r"\1 3750748848"),
    (r"(?m)^installed ethtool$", "\n".join(f"installed {name}" for name in ("ethtool", *MORE_PACKAGES))),
)
"""Pattern, replacement."""
