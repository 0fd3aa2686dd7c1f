"""Checkpoint in the published layout: HF tensor names, bf16 safetensors shards and their index; and back again."""

import json
import os

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from model import Config, Model, MoE

SHARD_BYTES = 15 << 20  # the limit for a file in the repository is 16 MiB


def named_tensors(model: Model) -> dict[str, torch.Tensor]:
    """Every tensor of the checkpoint by its published name (views of the model's own parameters)."""
    tensors: dict[str, torch.Tensor] = {}

    def put_layer(prefix: str, layer) -> None:
        for name, p in layer.named_parameters():
            if ".experts." not in name:
                tensors[f"{prefix}.{name}"] = p
        if isinstance(layer.mlp, MoE):
            moe = layer.mlp
            tensors[f"{prefix}.mlp.gate.e_score_correction_bias"] = moe.gate.e_score_correction_bias
            for e in range(moe.n):
                rows = slice(e * moe.inner, (e + 1) * moe.inner)
                tensors[f"{prefix}.mlp.experts.{e}.gate_proj.weight"] = moe.experts.gate_proj.weight[rows]
                tensors[f"{prefix}.mlp.experts.{e}.up_proj.weight"] = moe.experts.up_proj.weight[rows]
                tensors[f"{prefix}.mlp.experts.{e}.down_proj.weight"] = moe.experts.down_proj.weight[:, rows]

    tensors["model.embed_tokens.weight"] = model.embed_tokens.weight
    for i, layer in enumerate(model.layers):
        put_layer(f"model.layers.{i}", layer)
    tensors["model.norm.weight"] = model.norm.weight
    tensors["lm_head.weight"] = model.lm_head.weight
    mtp = f"model.layers.{len(model.layers)}"
    tensors[f"{mtp}.embed_tokens.weight"] = model.embed_tokens.weight
    for name in ("enorm", "hnorm", "eh_proj"):
        tensors[f"{mtp}.{name}.weight"] = getattr(model.mtp, name).weight
    put_layer(mtp, model.mtp.layer)
    tensors[f"{mtp}.shared_head.norm.weight"] = model.mtp.norm.weight
    tensors[f"{mtp}.shared_head.head.weight"] = model.lm_head.weight
    return tensors


def save_checkpoint(model: Model, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = total = 0
    for name, tensor in named_tensors(model).items():
        dtype = torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16
        copy = tensor.detach().to(dtype).cpu().contiguous().clone()
        if size + copy.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = copy
        size += copy.nbytes
        total += copy.nbytes
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, os.path.join(folder, file), metadata={"format": "pt"})
        weight_map |= {name: file for name in shard}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=1)
        f.write("\n")


@torch.no_grad()
def load_checkpoint(model: Model, folder: str) -> None:
    """Fills the model; every tensor of the model must be there, with its shape."""
    with open(os.path.join(folder, "model.safetensors.index.json")) as f:
        weight_map = json.load(f)["weight_map"]
    files = {name: safe_open(os.path.join(folder, name), "pt") for name in set(weight_map.values())}
    targets = named_tensors(model)
    if set(targets) != set(weight_map):
        raise SystemExit(f"{folder}: tensor names differ: {sorted(set(targets) ^ set(weight_map))[:5]}")
    for name, target in targets.items():
        value = files[weight_map[name]].get_tensor(name)
        if value.shape != target.shape:
            raise SystemExit(f"{folder}: {name} has shape {tuple(value.shape)}, expected {tuple(target.shape)}")
        target.copy_(value)


def load_model(folder: str, config_folder: str | None = None, device: str = "cpu") -> Model:
    model = Model(Config.load(os.path.join(config_folder or folder, "config.json")))
    load_checkpoint(model, folder)
    return model.to(device)
