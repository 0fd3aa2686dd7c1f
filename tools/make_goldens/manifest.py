"""The tensors of a checkpoint, in upstream names, with the ranges from which their random values are drawn.

Ranges keep activations near 1 and make every switch of the architecture visible in the logits: a width of
gain * sqrt(3 / in_features) gives outputs of standard deviation about `gain` for inputs of about 1.
"""

import math

import numpy as np

FP8_SUFFIXES = (
    "q_proj",
    "q_a_proj",
    "q_b_proj",
    "kv_a_proj_with_mqa",
    "kv_b_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "wq_b",
    "wk",
)
GAINS = {"q_proj": 1.5, "q_b_proj": 1.5, "o_proj": 0.7, "gate_proj": 1.2, "up_proj": 1.2, "mlp.gate": 1.5}


class Manifest:
    def __init__(self, case):
        self.case = case
        self.config = case["config"]
        self.tensors = []
        for name, shape in self.named_shapes():
            self.add(name, shape)

    def as_json(self):
        return {"salt": self.case["salt"], "tensors": self.tensors}

    def add(self, name, shape):
        entry = {"name": name, "shape": list(shape), "dtype": self.case["dtype"]}
        module = name.removesuffix(".weight")
        if name.endswith("e_score_correction_bias"):
            # Mostly negative where groups are masked: a masked group then must be -inf, a 0 would win.
            entry.update(dtype="F32", offset=-0.9 if self.groups() > 1 else 0.1, scale=0.5)
        elif name.endswith("k_norm.bias"):
            entry.update(offset=0.0, scale=0.3)
        elif len(shape) == 1:
            entry.update(offset=1.0, scale=0.3)
        elif "embed_tokens" in name:
            entry.update(offset=0.0, scale=1.7)
        elif self.case.get("fp8") and module.endswith(FP8_SUFFIXES):
            self.add_fp8(name, shape)
            return
        else:
            gain = next((g for suffix, g in GAINS.items() if module.endswith(suffix)), 1.0)
            if ".experts." in name and module.endswith("down_proj"):
                gain = self.case.get("expert_gain", 0.5)
            entry.update(offset=0.0, scale=gain * math.sqrt(3.0 / shape[1]))
        if ".layers." in name and name.endswith("embed_tokens.weight"):
            entry["same_as"] = "model.embed_tokens.weight"
        if name.endswith("shared_head.head.weight"):
            entry.update(same_as="lm_head.weight")
        entry.update(offset=float(np.float32(entry["offset"])), scale=float(np.float32(entry["scale"])))
        self.tensors.append(entry)

    def add_fp8(self, name, shape):
        """A random e4m3 byte with this generator has a root mean square of about 0.6."""
        self.tensors.append(
            {"name": name, "shape": list(shape), "dtype": "F8_E4M3", "kind": "e4m3", "offset": 0, "scale": 0}
        )
        blocks = [math.ceil(n / 128) for n in shape]
        target = 1.0 / (0.6 * math.sqrt(shape[1]))
        entry = {"name": name + "_scale_inv", "shape": blocks, "dtype": "F32"}
        if self.case["fp8"] == "ue8m0":
            entry.update(kind="pow2", offset=math.floor(math.log2(target)), scale=2)
        else:
            entry.update(offset=float(np.float32(target)), scale=float(np.float32(target * 0.6)))
        self.tensors.append(entry)

    def groups(self):
        return self.config.get("n_group") or 1

    def named_shapes(self):
        c = self.config
        yield "model.embed_tokens.weight", (c["vocab_size"], c["hidden_size"])
        for layer in range(c["num_hidden_layers"]):
            dense = self.case["dense_layers"] > layer
            yield from self.layer_shapes(f"model.layers.{layer}.", dense, self.has_indexer(layer))
        yield "model.norm.weight", (c["hidden_size"],)
        yield "lm_head.weight", (c["vocab_size"], c["hidden_size"])
        if self.case.get("mtp"):
            prefix = f"model.layers.{c['num_hidden_layers']}."
            hidden = c["hidden_size"]
            yield prefix + "embed_tokens.weight", (c["vocab_size"], hidden)
            yield prefix + "enorm.weight", (hidden,)
            yield prefix + "hnorm.weight", (hidden,)
            yield prefix + "eh_proj.weight", (hidden, 2 * hidden)
            yield from self.layer_shapes(prefix, False, "index_topk" in c)
            yield prefix + "shared_head.norm.weight", (hidden,)
            yield prefix + "shared_head.head.weight", (c["vocab_size"], hidden)

    def has_indexer(self, layer):
        types = self.case.get("indexer_types")
        return "index_topk" in self.config and (types is None or types[layer] == "full")

    def layer_shapes(self, prefix, dense, indexer):
        c = self.config
        hidden, heads = c["hidden_size"], c["num_attention_heads"]
        nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        q_lora, kv_lora = c.get("q_lora_rank"), c["kv_lora_rank"]
        attention = prefix + "self_attn."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        if q_lora is None:
            yield attention + "q_proj.weight", (heads * (nope + rope), hidden)
        else:
            yield attention + "q_a_proj.weight", (q_lora, hidden)
            yield attention + "q_a_layernorm.weight", (q_lora,)
            yield attention + "q_b_proj.weight", (heads * (nope + rope), q_lora)
        yield attention + "kv_a_proj_with_mqa.weight", (kv_lora + rope, hidden)
        yield attention + "kv_a_layernorm.weight", (kv_lora,)
        yield attention + "kv_b_proj.weight", (heads * (nope + value), kv_lora)
        yield attention + "o_proj.weight", (hidden, heads * value)
        if indexer:
            yield attention + "indexer.wq_b.weight", (c["index_n_heads"] * c["index_head_dim"], q_lora)
            yield attention + "indexer.wk.weight", (c["index_head_dim"], hidden)
            yield attention + "indexer.k_norm.weight", (c["index_head_dim"],)
            yield attention + "indexer.k_norm.bias", (c["index_head_dim"],)
            yield attention + "indexer.weights_proj.weight", (c["index_n_heads"], hidden)
        if dense:
            yield from self.mlp_shapes(prefix + "mlp.", c["intermediate_size"])
            return
        yield prefix + "mlp.gate.weight", (c["n_routed_experts"], hidden)
        if self.case["family"] != "v2":
            yield prefix + "mlp.gate.e_score_correction_bias", (c["n_routed_experts"],)
        for expert in range(c["n_routed_experts"]):
            yield from self.mlp_shapes(f"{prefix}mlp.experts.{expert}.", c["moe_intermediate_size"])
        yield from self.mlp_shapes(prefix + "mlp.shared_experts.", c["n_shared_experts"] * c["moe_intermediate_size"])

    def mlp_shapes(self, prefix, intermediate):
        hidden = self.config["hidden_size"]
        yield prefix + "gate_proj.weight", (intermediate, hidden)
        yield prefix + "up_proj.weight", (intermediate, hidden)
        yield prefix + "down_proj.weight", (hidden, intermediate)
