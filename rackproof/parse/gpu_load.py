"""PCIe links, clocks, power and heat of GPUs, asked again and again by ``nvidia-smi --query-gpu``."""

from __future__ import annotations

import re
from typing import Final

from rackproof.core.gpu_links import LinkSample
from rackproof.parse.clocks import time_of
from rackproof.parse.errors import ParseError
from rackproof.parse.text import excerpt, matched, real, text_of

_FIELDS: Final = (
    *("pci.bus_id", "pstate", "utilization.gpu", "pcie.link.gen.current", "pcie.link.gen.max"),
    *("pcie.link.width.current", "pcie.link.width.max"),
    *("clocks_throttle_reasons.active", "clocks.sm", "power.draw", "temperature.gpu"),
)
"""The former name of the reasons, which old and new drivers know (nvidia-smi --help-query-gpu of 580 gives both)."""
SAMPLER: Final = (
    ": rackproof gpu links; while date +%s.%N && timeout 30 nvidia-smi"
    f" --query-gpu={','.join(_FIELDS)} --format=csv,noheader,nounits; do sleep 1; done"
)
"""Command that runs until it is ended. Each round begins with the time by the node's clock."""
_TOOL: Final = "nvidia-smi"
_ABSENT: Final = re.compile(r"\[(?:N/A|Not Supported|Unknown Error)\]|N/A")


def parse_gpu_links(output: str | bytes) -> tuple[LinkSample, ...]:
    """Output of ``SAMPLER``, which was ended at any moment: an unfinished last line is left out. Raises ParseError."""
    text = text_of(_TOOL, output)
    samples, at_s = [], None
    for line in text[: text.rfind("\n") + 1].splitlines():
        if (time := time_of(line)) is not None:
            at_s = time
        else:
            samples.append(_sample(line)._replace(at_s=at_s))
    if not samples:
        raise ParseError(_TOOL, f"no whole line, got {excerpt(text)}")
    return tuple(samples)


def _sample(line: str) -> LinkSample:
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(_FIELDS) or not re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", words[0]):
        raise ParseError(_TOOL, f"expected the link of a GPU, got {excerpt(line)}")
    state = None if _ABSENT.fullmatch(words[1]) else words[1]
    if state is not None and not re.fullmatch(r"P\d{1,2}", state):
        raise ParseError(_TOOL, f"expected a performance state, got {excerpt(words[1])}")
    links, (reasons, clock, power, temperature) = words[2:7], words[7:]
    sample = LinkSample(words[0], state, *(_number(word) for word in links))
    return sample._replace(
        reasons=_bits(reasons), sm_mhz=_number(clock), power_w=_watts(power), temperature_c=_number(temperature)
    )


def _number(word: str) -> int | None:
    if _ABSENT.fullmatch(word):
        return None
    matched(_TOOL, r"\d{1,4}", word, "a number")
    return int(word)


def _bits(word: str) -> int | None:
    if _ABSENT.fullmatch(word):
        return None
    matched(_TOOL, r"0x[0-9A-Fa-f]{16}", word, "reasons of clocks")
    return int(word, 16)


def _watts(word: str) -> float | None:
    if _ABSENT.fullmatch(word):
        return None
    return real(_TOOL, "power", word)
