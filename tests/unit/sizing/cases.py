"""Published systems as small reference architectures, with nothing in them but what the sizing model reads."""

from __future__ import annotations

from functools import cache

from rackproof.architectures import parse
from rackproof.core.architecture import Architecture
from rackproof.core.sizing.inputs import Inputs, inputs_of, parse_choice

_HEAD = """
apiVersion: refarch/v1
metadata:
  id: case
  version: 1.0.0
  title: A case of the sizing model
  scope: Arithmetic only
  sources:
    published: {doc: The vendor's own figures, status: verified}
    derived: {doc: Arithmetic on the vendor's own figures, status: derived}
    assumed: {doc: An assumption of the worked example, status: proposed}
roles:
  gpu: {count: {min: 1}}
"""

F800_DGX1 = f"""{_HEAD}
workloads:
  resnet50:
    title: ResNet50 on ImageNet, 150 copies
    sample_size: {{value: 115154, unit: B, source: published}}
    rate_per_gpu: {{value: 712.46, unit: 1/s, source: derived}}
    batch_per_gpu: 256
    cpu_time_per_sample: {{value: 3.23, unit: ms, source: derived}}
    read_size: {{value: 512, unit: KiB, source: published}}
    dataset: {{value: 22.2, unit: TB, source: published}}
    epochs: 10
    checkpoint: {{value: null, unit: GB, source: published, note: not published}}
  inception4-large:
    title: Inception-v4 on large images, 13 copies
    sample_size: {{value: 1350932, unit: B, source: derived}}
    rate_per_gpu: {{value: 204.54, unit: 1/s, source: derived}}
    cpu_time_per_sample: {{value: 20.5, unit: ms, source: derived}}
    read_size: {{value: 512, unit: KiB, source: published}}
    dataset: {{value: 22.5, unit: TB, source: published}}
    epochs: 10
  googlenet-serving:
    title: GoogLeNet inference on the same images
    kind: inference
    sample_size: {{value: 150528, unit: B, source: published}}
    rate_per_gpu: {{value: 5250, unit: 1/s, source: derived}}
    cpu_time_per_sample: {{value: 0.2, unit: ms, source: assumed}}
    read_size: {{value: 128, unit: KiB, source: assumed}}
    dataset: {{value: 22.2, unit: TB, source: assumed}}
sizing:
  nodes: 9
  gpus_per_node: 8
  cores_per_node: 40
  client_cache: {{value: 512, unit: GB, source: published}}
  storage_ports: 1
  port_rate: {{value: 100, unit: Gb/s, source: published}}
  connections_per_node: 16
  connections_used: 8
  connection_rate: {{value: 1.56, unit: GB/s, source: derived}}
  unit:
    title: F800 chassis with 4 nodes
    count: 2
    read: {{value: 15, unit: GB/s, source: published}}
    read_measured: {{value: 12, unit: GB/s, source: published}}
    read_iops: {{value: 1000, unit: kIOPS, source: published}}
    loaded_latency: {{value: 5, unit: ms, source: assumed}}
    unloaded_latency: {{value: null, unit: ms, source: published, note: not published}}
    cache: {{value: 1, unit: TB, source: published}}
    nodes: 4
    ports: 8
    port_rate: {{value: 40, unit: Gb/s, source: published}}
"""

UNET3D_H100 = f"""{_HEAD}
workloads:
  unet3d:
    title: 3D U-Net, H100
    sample_size: {{value: 146.600628, unit: MB, source: published}}
    rate_per_gpu: {{value: 21.7, unit: 1/s, source: published}}
    read_size: {{value: 1, unit: MiB, source: assumed}}
    dataset: {{value: 40, unit: TB, source: assumed}}
    epochs: 5
    checkpoint: {{value: 912, unit: GB, source: published}}
    checkpoint_interval: {{value: 1800, unit: s, source: assumed}}
sizing:
  nodes: 1
  gpus_per_node: 8
  cores_per_node: 112
  client_cache: {{value: 2, unit: TB, source: published}}
  storage_ports: 1
  port_rate: {{value: 400, unit: Gb/s, source: published}}
  port_efficiency: 0.96
  connections_per_node: 8
  connection_rate: {{value: 6.25, unit: GB/s, source: derived}}
  connection_slots: 64
  unit:
    title: The guideline's level
    read: {{value: 8, unit: GB/s, source: published}}
    write: {{value: 4, unit: GB/s, source: published}}
    read_iops: {{value: null, unit: IOPS, source: published, note: not published}}
    unloaded_latency: {{value: 1, unit: ms, source: assumed}}
  ceilings: {{storage: 1.0}}
"""


@cache
def architecture(text: str = F800_DGX1) -> Architecture:
    return parse(text, "case.yaml")


def case(*workloads: str, settings: tuple[str, ...] = (), text: str = F800_DGX1) -> Inputs:
    """``case("resnet50:6", "googlenet-serving:3", settings=("nodes=9",))``."""
    last = {setting.partition("=")[0]: setting for setting in settings}  # a case's own settings come last
    return inputs_of(architecture(text), [parse_choice(w) for w in workloads], last.values())
