"""Two models."""

import types

import torch

__version__ = "0.0-stand-in"


def googlenet(weights, num_classes, *, aux_logits, init_weights):
    if aux_logits or init_weights:
        raise RuntimeError("further heads of googlenet have no loss")
    return torch.Model()


models = types.SimpleNamespace(resnet18=lambda weights, num_classes: torch.Model(), googlenet=googlenet)
