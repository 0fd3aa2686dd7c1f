"""Our own plain forward pass of the family, one sequence at a time, in any float type.

It serves three ends: a float64 run says how exact the float32 goldens are and how far apart the k-th and the next
score lie, the `traps` switches show that a known mistake moves the logits beyond the tolerance, and the MTP layer has
its golden from here. The goldens of the main model come from transformers; make_goldens.py stops where both disagree.
"""

import math

import torch
import torch.nn.functional as F


def rope_settings(config):
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = rope.get("rope_theta", config.get("rope_theta"))
    kind = rope.get("rope_type", rope.get("type", "default"))
    return theta, (rope if kind == "yarn" else None)


def yarn_mscale(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def correction(beta, dim, theta, original):
    return dim * math.log(original / (2 * math.pi * beta)) / (2 * math.log(theta))


def power_of_two_scale(x):
    return torch.exp2(torch.ceil(torch.log2(x)))


def e4m3(x, scale):
    """x / scale rounded to e4m3 (scales keep it within 448) and multiplied back."""
    return (x / scale).to(torch.float32).to(torch.float8_e4m3fn).to(x.dtype) * scale


def hadamard(dim, dtype):
    """Orthonormal Walsh-Hadamard matrix in natural (Sylvester) order."""
    h = torch.ones(1, 1, dtype=dtype)
    while h.shape[0] < dim:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return h * dim**-0.5


# What caches store in service, by the public formats: latents in bf16, or e4m3 with a scale per 128 values and bf16 rope;
# index keys and queries in e4m3 with one scale each, rotated by a Hadamard matrix before or not.
SERVED = {
    "bf16": {"latent": "bf16", "index": None, "hadamard": False},
    "fp8": {"latent": "fp8", "index": None, "hadamard": False},
    "bf16_index_fp8": {"latent": "bf16", "index": "fp8", "hadamard": False},
    "bf16_index_fp8_hadamard": {"latent": "bf16", "index": "fp8", "hadamard": True},
    "fp8_index_fp8": {"latent": "fp8", "index": "fp8", "hadamard": False},
}


class Reference:
    """traps: names of known mistakes to make (see TRAPS). rounded: do what an engine does with bf16 or FP8 weights, see
    hf_run.rounded_inputs. jitter: a torch.Generator; every matrix product is then off by about 1e-6 of itself, as in
    another implementation. served: what the caches round, an entry of SERVED."""

    def __init__(
        self,
        config,
        weights,
        dense_layers,
        indexer_types=None,
        dtype=torch.float64,
        traps=(),
        rounded=False,
        served=None,
        jitter=None,
    ):
        self.c = config
        self.w = {name: tensor.to(dtype) for name, tensor in weights.items()}
        self.dense_layers = dense_layers
        self.indexer_types = indexer_types
        self.dtype = dtype
        self.traps = set(traps)
        self.rounded = rounded
        self.jitter = jitter
        self.served = served or {"latent": None, "index": None, "hadamard": False}
        self.is_v2 = config["model_type"] == "deepseek_v2"
        self.index_interleaved = (config["model_type"] == "glm_moe_dsa") != ("index_rope" in self.traps)
        # transformers builds these two norms with its default eps whatever rms_norm_eps says.
        self.latent_eps = 1e-6

    # --- rope -----------------------------------------------------------------------------------------------------

    def inv_freq(self):
        dim = self.c["qk_rope_head_dim"]
        theta, scaling = rope_settings(self.c)
        base = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        if scaling is None:
            return base
        original = scaling["original_max_position_embeddings"]
        fast, slow = scaling["beta_fast"], scaling["beta_slow"]
        if "yarn_beta" in self.traps:
            fast, slow = 32, 1
        low = max(math.floor(correction(fast, dim, theta, original)), 0)
        high = min(math.ceil(correction(slow, dim, theta, original)), dim - 1)
        ramp = (torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low if high != low else 0.001)
        ramp = ramp.clamp(0, 1)
        if "no_yarn" in self.traps:
            ramp = torch.zeros_like(ramp)
        return base * (1 - ramp) + base / scaling["factor"] * ramp

    def softmax_scale(self):
        scale = (self.c["qk_nope_head_dim"] + self.c["qk_rope_head_dim"]) ** -0.5
        _, scaling = rope_settings(self.c)
        if scaling and scaling.get("mscale_all_dim") and "no_mscale" not in self.traps:
            scale *= yarn_mscale(scaling["factor"], scaling["mscale_all_dim"]) ** 2
        return scale

    def cos_sin(self, positions):
        angles = positions.to(torch.float64)[:, None] * self.inv_freq()[None]
        _, scaling = rope_settings(self.c)
        factor = 1.0
        if scaling and scaling.get("mscale") and scaling.get("mscale_all_dim"):
            factor = yarn_mscale(scaling["factor"], scaling["mscale"]) / yarn_mscale(
                scaling["factor"], scaling["mscale_all_dim"]
            )
        return (angles.cos() * factor).to(self.dtype), (angles.sin() * factor).to(self.dtype)

    @staticmethod
    def rotate(x, cos, sin, interleaved):
        """x [T, heads, dim] rotated in pairs (2i, 2i+1) or (i, i + dim/2); the output keeps the input's layout."""
        half = x.shape[-1] // 2
        cos, sin = cos[:, None], sin[:, None]
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
        first, second = a * cos - b * sin, a * sin + b * cos
        return torch.stack([first, second], -1).flatten(-2) if interleaved else torch.cat([first, second], -1)

    # --- layers ---------------------------------------------------------------------------------------------------

    def norm(self, x, name, eps=None):
        eps = self.c["rms_norm_eps"] if eps is None else eps
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.w[name]

    def linear(self, x, name):
        exact = name.endswith(("mlp.gate", "weights_proj"))
        y = (x if exact else self.bf16(x)) @ self.w[name + ".weight"].T
        return y if self.jitter is None else y * (1 + 1e-6 * torch.randn(y.shape, generator=self.jitter))

    def bf16(self, x):
        return self.to_bf16(x) if self.rounded else x

    def to_bf16(self, x):
        return x.to(torch.float32).to(torch.bfloat16).to(self.dtype)

    def select(self, prefix, x, q_resid, cos, sin, seen):
        """Boolean [T, T] selection of the indexer, and how clear it was: (k-th - next score) / largest |score|."""
        c, p = self.c, prefix + "indexer."
        rope, heads, topk = c["qk_rope_head_dim"], c["index_n_heads"], c["index_topk"]
        q = self.linear(q_resid, p + "wq_b").unflatten(-1, (heads, -1))
        k = F.layer_norm(
            self.linear(x, p + "wk"),
            (c["index_head_dim"],),
            self.w[p + "k_norm.weight"],
            self.w[p + "k_norm.bias"],
            1e-6,
        )[:, None]
        first = slice(0, rope) if "index_rope_last" not in self.traps else slice(c["index_head_dim"] - rope, None)
        q, k = q.clone(), k.clone()
        q[..., first] = self.rotate(q[..., first], cos, sin, self.index_interleaved)
        k[..., first] = self.rotate(k[..., first], cos, sin, self.index_interleaved)
        if self.served["hadamard"]:
            rotation = hadamard(c["index_head_dim"], self.dtype)
            q, k = q @ rotation, k @ rotation
        if self.served["index"] == "fp8":
            q = e4m3(q, power_of_two_scale(q.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448))
            k = e4m3(k, power_of_two_scale(k.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448))
        dots = torch.einsum("thd,sd->ths", q, k[:, 0])
        if "index_no_relu" not in self.traps:
            dots = dots.relu()
        weights = self.linear(x, p + "weights_proj") * (heads * c["index_head_dim"]) ** -0.5
        scores = torch.einsum("th,ths->ts", weights, dots).masked_fill(~seen, -math.inf)
        if "index_recent" in self.traps:
            scores = torch.arange(scores.shape[1], dtype=self.dtype).expand_as(scores).masked_fill(~seen, -math.inf)
        length = scores.shape[1]
        order = torch.sort(scores, dim=-1, descending=True, stable=True)
        chosen = torch.zeros_like(seen).scatter(1, order.indices[:, :topk], True) & seen
        gap = torch.full((length,), math.inf, dtype=self.dtype)
        if length > topk:
            kth, following = order.values[:, topk - 1], order.values[:, topk]
            peak = scores.masked_fill(~seen, 0).abs().amax(-1)
            gap = torch.where(following.isinf(), math.inf, (kth - following) / peak)
        return chosen, gap

    def attention(self, prefix, x, cos, sin, capture, indexer, previous):
        c, p = self.c, prefix + "self_attn."
        heads, nope, rope, value = (
            c["num_attention_heads"],
            c["qk_nope_head_dim"],
            c["qk_rope_head_dim"],
            c["v_head_dim"],
        )
        length, kv_lora = x.shape[0], c["kv_lora_rank"]
        interleaved = "main_rope" not in self.traps
        if c.get("q_lora_rank") is None:
            q_resid, q = None, self.linear(x, p + "q_proj")
        else:
            q_resid = self.norm(self.linear(x, p + "q_a_proj"), p + "q_a_layernorm.weight", self.latent_eps)
            q = self.linear(q_resid, p + "q_b_proj")
        q = q.unflatten(-1, (heads, nope + rope))
        latent = self.linear(x, p + "kv_a_proj_with_mqa")
        k_rope = self.bf16(self.rotate(latent[:, None, kv_lora:], cos, sin, interleaved))
        kv = self.norm(latent[:, :kv_lora], p + "kv_a_layernorm.weight", self.latent_eps)
        if self.served["latent"] is not None:
            k_rope = self.to_bf16(k_rope)
        if self.served["latent"] == "bf16":
            kv = self.to_bf16(kv)
        if self.served["latent"] == "fp8":
            groups = kv.unflatten(-1, (-1, 128))
            kv = e4m3(groups, power_of_two_scale((groups.abs().amax(-1, keepdim=True) / 448).clamp(min=1e-4))).flatten(
                -2
            )
        kv = self.linear(kv, p + "kv_b_proj").unflatten(-1, (heads, nope + value))
        q = torch.cat([q[..., :nope], self.rotate(q[..., nope:], cos, sin, interleaved)], -1)
        k = torch.cat([kv[..., :nope], k_rope.expand(-1, heads, -1)], -1)
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        if indexer == "full":
            seen, gap = self.select(p, x, q_resid, cos, sin, seen)
            capture.update(selected=seen, selected_gap=gap)
        elif indexer == "shared":
            seen = previous
        scores = torch.einsum("thd,shd->hts", q, k) * self.softmax_scale()
        probabilities = scores.masked_fill(~seen, -math.inf).softmax(-1)
        out = torch.einsum("hts,shd->thd", probabilities, kv[..., nope:]).flatten(-2)
        return self.linear(out, p + "o_proj"), seen

    def mlp(self, x, p):
        return self.linear(F.silu(self.linear(x, p + "gate_proj")) * self.linear(x, p + "up_proj"), p + "down_proj")

    def route(self, x, p):
        """experts [T, k] ascending, their weights, and the smallest gap that decided the choice."""
        c, traps = self.c, self.traps
        groups, kept, topk = c.get("n_group") or 1, c.get("topk_group") or 1, c["num_experts_per_tok"]
        logits = self.linear(x, p + "gate")
        scores = logits.softmax(-1) if self.is_v2 else logits.sigmoid()
        choice = scores if self.is_v2 else scores + self.w[p + "gate.e_score_correction_bias"]
        if "no_bias" in traps:
            choice = scores
        gaps = []
        if groups > 1:
            grouped = choice.unflatten(-1, (groups, -1))
            use_max = self.is_v2 != ("group_score" in traps)
            group_score = grouped.amax(-1) if use_max else grouped.topk(2, -1).values.sum(-1)
            if "group_sum_all" in traps:
                group_score = grouped.sum(-1)
            order = torch.sort(group_score, dim=-1, descending=True, stable=True)
            gaps.append(order.values[:, kept - 1] - order.values[:, kept])
            keep = torch.zeros_like(group_score, dtype=torch.bool).scatter(1, order.indices[:, :kept], True)
            if "no_groups" in traps:
                keep[:] = True
            masked = 0.0 if (self.is_v2 or "mask_zero" in traps) else -math.inf
            choice = torch.where(
                keep[..., None].expand_as(grouped), grouped, torch.tensor(masked, dtype=self.dtype)
            ).flatten(-2)
        order = torch.sort(choice, dim=-1, descending=True, stable=True)
        gaps.append(order.values[:, topk - 1] - order.values[:, topk])
        experts = order.indices[:, :topk].sort(-1).values
        weights = (choice if "biased_weights" in traps else scores).gather(1, experts)
        if c.get("norm_topk_prob") and not self.is_v2 and "no_renorm" not in traps:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if "no_routed_scale" not in traps:
            weights = weights * c["routed_scaling_factor"]
        return experts, weights, torch.stack(gaps).amin(0)

    def moe(self, x, p, capture):
        experts, weights, gap = self.route(x, p)
        capture.update(experts=experts, expert_weights=weights, router_gap=gap)
        out = self.mlp(x, p + "shared_experts.")
        for expert in range(self.c["n_routed_experts"]):
            token, slot = (experts == expert).nonzero(as_tuple=True)
            if len(token):
                y = self.mlp(x[token], f"{p}experts.{expert}.") * weights[token, slot, None]
                out = out.index_add(0, token, y)
        return out

    def layer(self, prefix, x, cos, sin, dense, indexer, previous=None):
        capture = {}
        attended, seen = self.attention(
            prefix, self.norm(x, prefix + "input_layernorm.weight"), cos, sin, capture, indexer, previous
        )
        x = x + attended
        h = self.norm(x, prefix + "post_attention_layernorm.weight")
        x = x + (self.mlp(h, prefix + "mlp.") if dense else self.moe(h, prefix + "mlp.", capture))
        capture["hidden"] = x
        return x, capture, seen

    # --- model ----------------------------------------------------------------------------------------------------

    def indexer_of(self, layer):
        if "index_topk" not in self.c or "dense" in self.traps:
            return None
        if self.indexer_types is None:
            return "full"
        return self.indexer_types[layer]

    def forward(self, ids):
        """ids [T] -> {"logits" [T, V], "final" [T, H] after the last norm, "embedding" [T, H], "layers": [capture]}."""
        x = self.w["model.embed_tokens.weight"][ids]
        result = {"embedding": x, "layers": []}
        cos, sin = self.cos_sin(torch.arange(len(ids)))
        seen = None
        for index in range(self.c["num_hidden_layers"]):
            x, capture, seen = self.layer(
                f"model.layers.{index}.", x, cos, sin, index < self.dense_layers, self.indexer_of(index), seen
            )
            result["layers"].append(capture)
        result["final"] = self.norm(x, "model.norm.weight")
        result["logits"] = self.linear(result["final"], "lm_head")
        return result

    def mtp(self, ids, hidden, positions=None, chosen=None):
        """Draft logits of the MTP layer. Entry i sees hidden[i] (after the model's last norm) and ids[i] = token i + 1.

        `chosen` [T - 1, T - 1]: the keys that the entries but the last were to see. The last one, a further draft, then
        sees those of the entry before it instead of keys of its own (index_share_for_mtp_iteration).
        Returns logits [T, V] for token i + 2, the layer's output before shared_head.norm and after it, and its capture.
        """
        p = f"model.layers.{self.c['num_hidden_layers']}."
        embedded = self.norm(self.w[p + "embed_tokens.weight"][ids], p + "enorm.weight")
        previous = self.norm(hidden, p + "hnorm.weight")
        halves = [previous, embedded] if "mtp_order" in self.traps else [embedded, previous]
        x = self.linear(torch.cat(halves, -1), p + "eh_proj")
        cos, sin = self.cos_sin(torch.arange(len(ids)) if positions is None else positions)
        indexer, previous = "full" if "index_topk" in self.c else None, None
        if chosen is not None:
            indexer, previous = "shared", F.pad(torch.cat([chosen, chosen[-1:]]), (0, 1))
        x, capture, _ = self.layer(p, x, cos, sin, False, indexer, previous)
        after = self.norm(x, p + "shared_head.norm.weight")
        return {
            "logits": self.linear(after, p + "shared_head.head"),
            "before_norm": x,
            "after_norm": after,
            "layer": capture,
        }


# name -> (what the mistake is, does it apply to this config)
TRAPS = {
    "index_rope": ("indexer rope pairs interleaved instead of half-split, or the reverse", lambda c: "index_topk" in c),
    "index_rope_last": ("indexer rope on the last dims instead of the first", lambda c: "index_topk" in c),
    "index_no_relu": ("indexer without relu", lambda c: "index_topk" in c),
    "index_recent": ("the most recent index_topk keys instead of the indexer's choice", lambda c: "index_topk" in c),
    "dense": ("no indexer at all", lambda c: "index_topk" in c),
    "main_rope": ("main rope half-split instead of interleaved", lambda c: True),
    "no_mscale": ("softmax scale without mscale^2", lambda c: rope_settings(c)[1] is not None),
    "no_yarn": ("plain frequencies instead of YaRN", lambda c: rope_settings(c)[1] is not None),
    "yarn_beta": ("beta 32/1 whatever the config says", lambda c: (rope_settings(c)[1] or {}).get("beta_fast") == 1),
    "biased_weights": ("expert weights from the biased scores", lambda c: c["model_type"] != "deepseek_v2"),
    "no_bias": ("correction bias left out", lambda c: c["model_type"] != "deepseek_v2"),
    "group_score": ("group score max instead of top-2 sum, or the reverse", lambda c: (c.get("n_group") or 1) > 1),
    "group_sum_all": ("group score over all experts of the group", lambda c: (c.get("n_group") or 1) > 1),
    "no_groups": ("groups ignored", lambda c: (c.get("n_group") or 1) > 1),
    "mask_zero": (
        "masked groups 0 instead of -inf",
        lambda c: c["model_type"] != "deepseek_v2" and (c.get("n_group") or 1) > 1,
    ),
    "no_renorm": ("weights not renormalised", lambda c: c["model_type"] != "deepseek_v2"),
    "no_routed_scale": ("routed_scaling_factor left out", lambda c: c["routed_scaling_factor"] != 1.0),
}
