"""A trainable DeepSeek-V3.2: MLA, lightning indexer, mixture of experts, multi-token prediction (MTP) layer.

Written for training: the whole sequence at once, expanded attention, every expert evaluated densely (cheap at this size).
transformers' own indexer runs under no_grad and cannot be trained; check_hf.py shows that this model computes the same.
Module names follow the checkpoint's tensor names, but experts are fused here; export.py splits them.

Shapes: B batch, S sequence, H hidden, N heads, E experts.
"""

import json
from dataclasses import dataclass, fields

import torch
import torch.nn as nn
import torch.nn.functional as F

# How attention sees its keys: all of them; all of them with the indexer's KL loss; the indexer's choice with KL loss;
# the choice of an indexer with FP8-simulated scores; the most recent index_topk keys.
DENSE, WARMUP, SPARSE, SPARSE_FP8, RECENT = "dense", "warmup", "sparse", "sparse_fp8", "recent"


@dataclass
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    first_k_dense_replace: int
    num_attention_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    n_group: int
    topk_group: int
    routed_scaling_factor: float
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int

    @staticmethod
    def load(path: str) -> "Config":
        with open(path) as f:
            data = json.load(f)
        return Config(**{f.name: data[f.name] for f in fields(Config)})


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        f = x.float()
        return self.weight * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def linear(n_in: int, n_out: int) -> nn.Linear:
    return nn.Linear(n_in, n_out, bias=False)


def rope_tables(config: Config, length: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos, sin [length, rope/2], float32."""
    d = config.qk_rope_head_dim
    inv_freq = 1.0 / (config.rope_theta ** (torch.arange(0, d, 2, dtype=torch.float32, device=device) / d))
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), inv_freq)
    return angles.cos(), angles.sin()


def rope_pairs(x, cos, sin):
    """Rotates pairs (2i, 2i+1); x [B, S, heads, rope]."""
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


def rope_halves(x, cos, sin):
    """Rotates pairs (i, i + rope/2): the indexer's pairing."""
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)


def hadamard(x):
    """Orthonormal Hadamard transform of the last dimension (a power of two)."""
    n = x.shape[-1]
    shape, step = x.shape, 1
    while step < n:
        a, b = x.reshape(-1, n // (2 * step), 2, step).unbind(2)
        x = torch.stack((a + b, a - b), dim=2)
        step *= 2
    return x.reshape(shape) * n**-0.5


def fp8_simulated(x, floor: float):
    """Rounds to e4m3 with one power-of-two scale per vector: scale = 2^ceil(log2(max(amax, floor) / 448))."""
    scale = torch.exp2(torch.ceil(torch.log2(x.abs().amax(-1, keepdim=True).clamp_min(floor) / 448.0)))
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


class Indexer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.dim, self.rope = config.index_n_heads, config.index_head_dim, config.qk_rope_head_dim
        self.wq_b = linear(config.q_lora_rank, self.heads * self.dim)
        self.wk = linear(config.hidden_size, self.dim)
        self.k_norm = nn.LayerNorm(self.dim, eps=1e-6)
        self.weights_proj = linear(config.hidden_size, self.heads)

    def forward(self, x, qr, cos, sin, fp8: bool = False):
        """Scores [B, S, S], float32, without a causal mask. x [B, S, H] is the layer's normed input, qr [B, S, q_lora]."""
        q = self.wq_b(qr).unflatten(-1, (self.heads, self.dim))
        q = torch.cat((rope_halves(q[..., : self.rope], cos, sin), q[..., self.rope :]), dim=-1)
        k = self.k_norm(self.wk(x)).unsqueeze(2)
        k = torch.cat((rope_halves(k[..., : self.rope], cos, sin), k[..., self.rope :]), dim=-1).squeeze(2)
        with torch.autocast(x.device.type, enabled=False):
            weights = F.linear(x.float(), self.weights_proj.weight.float()) * (self.heads**-0.5 * self.dim**-0.5)
        if fp8:
            q, k = fp8_simulated(hadamard(q.float()), 1e-10), fp8_simulated(hadamard(k.float()), 1e-4)
        scores = torch.matmul(q.transpose(1, 2), k.to(q.dtype).unsqueeze(1).transpose(-1, -2))  # [B, heads, S, S]
        return (F.relu(scores).float() * weights.transpose(1, 2).unsqueeze(-1)).sum(1)


def causal_mask(length: int, device):
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def select_top(scores, visible, topk: int):
    """Boolean [B, S, S]: the topk visible keys with the largest scores (all of them where fewer are visible)."""
    length = scores.shape[-1]
    if topk >= length:
        return visible.expand_as(scores)
    index = scores.masked_fill(~visible, float("-inf")).topk(topk, dim=-1, sorted=False).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, index, True) & visible


def kl_to_scores(target, scores, mask):
    """Mean over rows of KL(target || softmax of scores over mask); target [B, S, S] is zero outside the mask."""
    logq = F.log_softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)
    return (torch.special.xlogy(target, target) - target * logq).sum(-1).mean()


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        c = config
        self.nope, self.rope, self.v, self.heads = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, c.num_attention_heads
        self.q_a_proj = linear(c.hidden_size, c.q_lora_rank)
        self.q_a_layernorm = RMSNorm(c.q_lora_rank, c.rms_norm_eps)
        self.q_b_proj = linear(c.q_lora_rank, self.heads * (self.nope + self.rope))
        self.kv_a_proj_with_mqa = linear(c.hidden_size, c.kv_lora_rank + self.rope)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank, c.rms_norm_eps)
        self.kv_b_proj = linear(c.kv_lora_rank, self.heads * (self.nope + self.v))
        self.o_proj = linear(self.heads * self.v, c.hidden_size)
        self.indexer = Indexer(c)
        self.scale = (self.nope + self.rope) ** -0.5

    def forward(self, x, cos, sin, mode: str):
        """Returns (output [B, S, H], KL loss of the indexer, selection mask [B, S, S] or None)."""
        qr = self.q_a_layernorm(self.q_a_proj(x))
        q = self.q_b_proj(qr).unflatten(-1, (self.heads, self.nope + self.rope))
        q = torch.cat((q[..., : self.nope], rope_pairs(q[..., self.nope :], cos, sin)), dim=-1).transpose(1, 2)
        latent = self.kv_a_proj_with_mqa(x)
        c = self.kv_a_layernorm(latent[..., : self.config.kv_lora_rank])
        k_pe = rope_pairs(latent[..., self.config.kv_lora_rank :].unsqueeze(2), cos, sin)
        kv = self.kv_b_proj(c).unflatten(-1, (self.heads, self.nope + self.v))
        k = torch.cat((kv[..., : self.nope], k_pe.expand(-1, -1, self.heads, -1).to(kv.dtype)), dim=-1).transpose(1, 2)
        v = kv[..., self.nope :].transpose(1, 2)
        kl, selected = x.new_zeros((), dtype=torch.float32), None
        if mode == DENSE:
            # Values are padded to the width of the keys: the flash kernel wants equal head sizes.
            out = F.scaled_dot_product_attention(q, k, F.pad(v, (0, self.nope + self.rope - self.v)), is_causal=True, scale=self.scale)
            out = out[..., : self.v]
        else:
            visible = causal_mask(x.shape[1], x.device)
            selected = visible.expand(x.shape[0], -1, -1)
            if mode == RECENT:
                selected = selected & ~visible.tril(-self.config.index_topk)
            else:
                # The indexer learns from its KL loss alone and never sends a gradient into the main model.
                scores = self.indexer(x.detach(), qr.detach(), cos, sin, fp8=mode == SPARSE_FP8)
                if mode != WARMUP:
                    selected = select_top(scores.detach(), visible, self.config.index_topk)
            logits = torch.matmul(q, k.transpose(-1, -2)) * self.scale
            p = torch.softmax(logits.float().masked_fill(~selected.unsqueeze(1), float("-inf")), dim=-1)
            out = torch.matmul(p.to(v.dtype), v)
            if mode in (WARMUP, SPARSE) and torch.is_grad_enabled():
                kl = kl_to_scores(p.detach().mean(1), scores, selected)
        return self.o_proj(out.transpose(1, 2).flatten(-2)), kl, selected


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts))

    def forward(self, x):
        """Weights [B, S, E], zero for experts that were not chosen, float32."""
        c = self.config
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.weight.float()).sigmoid()
            choice = scores.detach() + self.e_score_correction_bias
            grouped = choice.unflatten(-1, (c.n_group, -1))
            groups = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(-1).topk(c.topk_group, dim=-1).indices
            keep = torch.zeros_like(grouped[..., 0], dtype=torch.bool).scatter(-1, groups, True)
            choice = choice.masked_fill(~keep.repeat_interleave(grouped.shape[-1], dim=-1), float("-inf"))
            top = choice.topk(c.num_experts_per_tok, dim=-1).indices
            weights = scores * torch.zeros_like(scores).scatter(-1, top, 1.0)
            return weights / (weights.sum(-1, keepdim=True) + 1e-20) * c.routed_scaling_factor


class MoE(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        c = config
        self.gate = Gate(c)
        self.inner, self.n = c.moe_intermediate_size, c.n_routed_experts
        # Expert e owns rows [e*inner, (e+1)*inner) of gate_proj and up_proj and the same columns of down_proj.
        self.experts = MLP(c.hidden_size, c.n_routed_experts * c.moe_intermediate_size)
        self.shared_experts = MLP(c.hidden_size, c.n_shared_experts * c.moe_intermediate_size)

    def forward(self, x):
        """Returns (output, share of choices per expert [E])."""
        weights = self.gate(x)
        inner = F.silu(self.experts.gate_proj(x)) * self.experts.up_proj(x)
        inner = (inner.unflatten(-1, (self.n, self.inner)) * weights.unsqueeze(-1).to(inner.dtype)).flatten(-2)
        load = (weights.detach() > 0).float().mean((0, 1))
        return self.experts.down_proj(inner) + self.shared_experts(x), load


class DecoderLayer(nn.Module):
    def __init__(self, config: Config, dense_mlp: bool):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.dense_mlp = dense_mlp
        self.mlp = MLP(config.hidden_size, config.intermediate_size) if dense_mlp else MoE(config)

    def forward(self, x, cos, sin, mode: str):
        """Returns (x, KL loss, expert load or None)."""
        out, kl, _ = self.self_attn(self.input_layernorm(x), cos, sin, mode)
        x = x + out
        normed = self.post_attention_layernorm(x)
        out, load = (self.mlp(normed), None) if self.dense_mlp else self.mlp(normed)
        return x + out, kl, load


class MtpLayer(nn.Module):
    """Layer id num_hidden_layers of the checkpoint. Shares embedding and head with the main model."""

    def __init__(self, config: Config):
        super().__init__()
        self.enorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hnorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.eh_proj = linear(2 * config.hidden_size, config.hidden_size)
        self.layer = DecoderLayer(config, dense_mlp=False)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)  # shared_head.norm

    def combine(self, next_embedding, hidden):
        """Input of the layer. next_embedding[i] embeds token i+1; hidden[i] is the main model's output after its final norm
        or, when the layer is applied again, its own output at i-1 before `norm`."""
        return self.eh_proj(torch.cat((self.enorm(next_embedding), self.hnorm(hidden)), dim=-1)).to(next_embedding.dtype)


def run_layer(layer: DecoderLayer, x, cos, sin, mode: str):
    return layer(x, cos, sin, mode)


class Model(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, i < config.first_k_dense_replace) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = linear(config.hidden_size, config.vocab_size)
        self.mtp = MtpLayer(config)
        self.run_layer = run_layer  # a trainer puts its compiled version here

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        depth = (2 * (self.config.num_hidden_layers + 1)) ** -0.5
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            std = 0.5 if "embed_tokens" in name else 0.7 * p.shape[-1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                # Fused experts: the inner size is one expert's, and two of the eight are active.
                std = depth * (0.7 * self.config.moe_intermediate_size**-0.5 / 2.5 if ".experts." in name else std)
            p.copy_(torch.randn(p.shape, generator=generator) * std)

    def moe_layers(self) -> list[MoE]:
        return [l.mlp for l in self.layers if not l.dense_mlp] + [self.mtp.layer.mlp]

    def forward(self, tokens, mode: str):
        """Returns (hidden after the final norm [B, S, H], KL losses [layers], expert loads [MoE layers])."""
        cos, sin = rope_tables(self.config, tokens.shape[1], tokens.device)
        x = self.embed_tokens(tokens)
        kls, loads = [], []
        for layer in self.layers:
            x, kl, load = self.run_layer(layer, x, cos, sin, mode)
            kls.append(kl)
            if load is not None:
                loads.append(load)
        return self.norm(x), kls, loads

    def draft(self, next_tokens, hidden, mode: str, with_logits: bool = True):
        """One application of the MTP layer: (logits for the token after next_tokens, output before the norm, KL loss, load)."""
        cos, sin = rope_tables(self.config, next_tokens.shape[1], next_tokens.device)
        z = self.mtp.combine(self.embed_tokens(next_tokens), hidden)
        out, kl, load = self.run_layer(self.mtp.layer, z, cos, sin, mode)
        return self.lm_head(self.mtp.norm(out)) if with_logits else None, out, kl, load
