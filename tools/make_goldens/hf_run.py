"""Runs a case through transformers, float32 on the CPU with eager attention, and captures what the golden holds."""

import contextlib
import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers


def hf_config(case):
    """The committed config, less what transformers would not take literally: weights arrive dequantised, in float32."""
    config = dict(case["config"])
    config.pop("quantization_config", None)
    if config["model_type"] == "kimi_k2":  # the published files name this type and carry their own copy of the V3 code
        config["model_type"] = "deepseek_v3"
    for key in ("torch_dtype", "dtype"):
        if key in config:
            config[key] = "float32"
    return config


def load_hf(case, weights):
    """from_pretrained on a real checkpoint folder, so that upstream tensor names are what is being loaded."""
    main = {name: t for name, t in weights.items() if f".layers.{case['config']['num_hidden_layers']}." not in name}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(hf_config(case)))
        safetensors.torch.save_file(
            {k: v.contiguous() for k, v in main.items()}, folder / "model.safetensors", {"format": "pt"}
        )
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], (case["name"], key, info[key])
    assert type(model).__name__ in (case["config"]["architectures"][0],), type(model)
    return model.eval()


@contextlib.contextmanager
def stable_topk():
    """torch.topk leaves the order of equal values open; here the lower index wins, as in Lantern. It changes ties alone
    (relu makes index scores of exactly 0 common)."""

    def topk(x, k, dim=-1, largest=True, sorted=True):  # pylint: disable=redefined-builtin
        assert largest
        values, indices = torch.sort(x, dim=dim, descending=True, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    method, function = torch.Tensor.topk, torch.topk
    torch.Tensor.topk, torch.topk = topk, lambda input, k, **kw: topk(input, k, **kw)
    try:
        yield
    finally:
        torch.Tensor.topk, torch.topk = method, function


@contextlib.contextmanager
def rounded_inputs(model):
    """The arithmetic of an engine whose matrix units take bf16: the input of every matrix product is rounded to bf16
    (nearest even), but for the router and the indexer's head weights; the latent and its rotated key are rounded as a
    bf16 cache stores them. Weights, accumulation and everything else stay float32."""
    plain, module = torch.nn.functional.linear, sys.modules[type(model).__module__]
    rotate = module.apply_rotary_pos_emb_interleave
    exact = set()
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            exact.add(layer.mlp.gate.weight.data_ptr())
        if getattr(layer.self_attn, "indexer", None) is not None:
            exact.add(layer.self_attn.indexer.weights_proj.weight.data_ptr())

    def bf16(x):
        return x.to(torch.bfloat16).to(torch.float32)

    def rotate_and_store(q, k, *args, **kwargs):
        q, k = rotate(q, k, *args, **kwargs)
        return q, bf16(k)

    torch.nn.functional.linear = lambda x, w, bias=None: plain(x if w.data_ptr() in exact else bf16(x), w, bias)
    module.apply_rotary_pos_emb_interleave = rotate_and_store
    try:
        yield
    finally:
        torch.nn.functional.linear, module.apply_rotary_pos_emb_interleave = plain, rotate


@torch.no_grad()
def run_hf(model, ids, rounded=False):
    """ids [T] -> the same dictionary as Reference.forward, from transformers' modules through hooks."""
    decoder = model.model
    layers = [{} for _ in decoder.layers]
    result = {"layers": layers}
    hooks = [
        decoder.embed_tokens.register_forward_hook(lambda m, a, out: result.update(embedding=out[0])),
        decoder.norm.register_forward_hook(lambda m, a, out: result.update(final=out[0])),
    ]

    def on_layer(capture):
        return lambda m, a, out: capture.update(hidden=(out[0] if isinstance(out, tuple) else out)[0])

    def on_gate(capture):
        def hook(module, args, out):
            _, weights, experts = out
            order = experts.sort(-1)
            capture.update(experts=order.values, expert_weights=weights.gather(1, order.indices))

        return hook

    def on_indexer(capture):
        def hook(module, args, out):
            length = out.shape[1]
            chosen = torch.zeros(length, length, dtype=torch.bool).scatter(1, out[0].long(), True)
            capture.update(selected=chosen & torch.ones_like(chosen).tril())

        return hook

    for layer, capture in zip(decoder.layers, layers):
        hooks.append(layer.register_forward_hook(on_layer(capture)))
        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_hook(on_gate(capture)))
        if getattr(layer.self_attn, "indexer", None) is not None:
            hooks.append(layer.self_attn.indexer.register_forward_hook(on_indexer(capture)))
    try:
        with stable_topk(), rounded_inputs(model) if rounded else contextlib.nullcontext():
            result["logits"] = model(input_ids=ids[None], use_cache=False).logits[0]
    finally:
        for hook in hooks:
            hook.remove()
    return result


def greedy(model, ids, count, rounded=False):
    """count tokens, each from a full forward pass, and for each (best - second best) logit."""
    tokens, margins = [], []
    for _ in range(count):
        logits = run_hf(model, torch.cat([ids, torch.tensor(tokens, dtype=ids.dtype)]), rounded)["logits"][-1]
        best = logits.sort(descending=True)
        tokens.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return tokens, margins


@torch.no_grad()
def hf_mtp_layer(model, case, weights, ids, hidden):
    """The MTP layer by transformers itself, where its config class allows one (deepseek_v3): [T, H] after the norm."""
    from transformers.modeling_layers import MtpLayer  # not part of its public interface

    config = model.config.get_mtp_config()
    config._attn_implementation = "eager"
    layer = MtpLayer(config, type(model.model.layers[-1]), type(model.model.norm), 0).eval()
    prefix = f"model.layers.{case['config']['num_hidden_layers']}."
    state, experts = {}, {}
    for name, tensor in weights.items():
        if not name.startswith(prefix):
            continue
        name = name.removeprefix(prefix)
        if name.startswith(("embed_tokens", "shared_head.head")):
            continue
        if name.startswith("shared_head.norm"):
            name = "post_norm.weight"
        elif not name.startswith(("enorm", "hnorm", "eh_proj")):
            name = "mtp_block." + name
        if ".experts." in name and "shared" not in name:
            experts[name] = tensor
        else:
            state[name] = tensor
    count = case["config"]["n_routed_experts"]
    part = lambda kind: [experts[f"mtp_block.mlp.experts.{e}.{kind}_proj.weight"] for e in range(count)]
    state["mtp_block.mlp.experts.gate_up_proj"] = torch.stack(
        [torch.cat(pair) for pair in zip(part("gate"), part("up"))]
    )
    state["mtp_block.mlp.experts.down_proj"] = torch.stack(part("down"))
    layer.load_state_dict(state, strict=True)
    positions = torch.arange(1, len(ids) + 1)[None]  # transformers counts from 1 here; rope sees differences only
    embedded = model.model.embed_tokens(ids[None])
    mask = torch.full((len(ids), len(ids)), torch.finfo(torch.float32).min).triu(1)[None, None]
    with stable_topk():
        return layer(
            embedded,
            hidden[None],
            position_embeddings=model.model.rotary_emb(embedded, positions),
            attention_mask=mask,
            position_ids=positions,
            past_key_values=None,
        )[0]
