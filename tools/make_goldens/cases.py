"""The golden cases: configs as upstream spells them, at sizes that run in milliseconds.

`old` cases use the spelling of the published files (rope_theta, rope_scaling.type, first_k_dense_replace, torch_dtype),
`new` cases that of transformers 5 (rope_parameters.rope_type, mlp_layer_types, dtype).
"""

NANO = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
}
KDIMS = {
    **NANO,
    "hidden_size": 256,
    "intermediate_size": 384,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
COMMON = {
    "vocab_size": 256,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "use_cache": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
NANO_INDEX = {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 8}
KDIMS_INDEX = {"index_n_heads": 8, "index_head_dim": 128, "index_topk": 64}
# Three experts of two groups of four: top-2 sum, max and sum of all rank the groups differently.
V3_ROUTER = {
    "n_routed_experts": 16,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}
ONE_GROUP = {"n_group": 1, "topk_group": 1, "norm_topk_prob": True}


def yarn(factor, original, all_dim, mscale=None, beta_fast=32, beta_slow=1):
    return {
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": beta_fast,
        "beta_slow": beta_slow,
        "mscale": all_dim if mscale is None else mscale,
        "mscale_all_dim": all_dim,
    }


def spelled(spelling, dense_layers, theta, scaling=None, max_position=None):
    """The fields whose spelling changed; the new one has its dense layers in mlp_layer_types (see mlp_types)."""
    max_position = max_position or (
        int(scaling["factor"] * scaling["original_max_position_embeddings"]) if scaling else 2048
    )
    if spelling == "old":
        return {
            "rope_theta": theta,
            "rope_scaling": {"type": "yarn", **scaling} if scaling else None,
            "first_k_dense_replace": dense_layers,
            "moe_layer_freq": 1,
            "torch_dtype": "bfloat16",
            "max_position_embeddings": max_position,
        }
    rope = (
        {"rope_type": "yarn", "rope_theta": theta, **scaling}
        if scaling
        else {"rope_type": "default", "rope_theta": theta}
    )
    return {"rope_parameters": rope, "dtype": "bfloat16", "max_position_embeddings": max_position}


def mlp_types(dense, layers):
    return {"mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense)}


def build_cases():
    # rope_dim 8, theta 1e4, L0 64: the ramp runs from pair 0 to pair 2, so that pair 1 is mixed half and half.
    nano_yarn = yarn(40, 64, 1.0)
    noaux = {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}
    v3 = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "rms_norm_eps": 1e-6}
    v32 = {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "rms_norm_eps": 1e-6}
    glm5 = {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        "rms_norm_eps": 1e-5,
        "indexer_rope_interleave": True,
        "eos_token_id": [1, 2, 3],
        "routed_scaling_factor": 2.5,
    }
    flash = {
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "model_type": "glm4_moe_lite",
        "rms_norm_eps": 1e-5,
        "routed_scaling_factor": 1.8,
        "rope_interleave": True,
        "topk_method": "noaux_tc",
    }
    block = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    fp8_sizes = {
        "hidden_size": 320,
        "intermediate_size": 336,
        "moe_intermediate_size": 72,
        "num_hidden_layers": 3,
        "q_lora_rank": 192,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 48,
        "qk_rope_head_dim": 64,
        "v_head_dim": 40,
    }
    cases = {}

    def add(name, *parts, lengths=(48, 29), dense_layers=1, **extra):
        config = {}
        for part in (COMMON, *parts):
            config.update(part)
        family = {"deepseek_v2": "v2"}.get(config["model_type"], "v3")
        cases[name] = {
            "name": name,
            "config": config,
            "lengths": lengths,
            "dense_layers": dense_layers,
            "family": family,
            "dtype": "F32",
            "rounded": False,
            "positions": "all",
            **extra,
        }
        names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
        config["torch_dtype" if "torch_dtype" in config else "dtype"] = names[cases[name]["dtype"]]

    add(
        "v2lite",
        NANO,
        {
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "rms_norm_eps": 1e-6,
            "q_lora_rank": None,
            "n_shared_experts": 2,
            "n_group": 1,
            "topk_group": 1,
            "scoring_func": "softmax",
            "topk_method": "greedy",
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
        },
        spelled("old", 1, 1e4, yarn(40, 64, 0.707)),
        expert_gain=2.0,
    )
    add(
        "v2",
        NANO,
        {
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "rms_norm_eps": 1e-6,
            "n_routed_experts": 16,
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "scoring_func": "softmax",
            "topk_method": "group_limited_greedy",
            "norm_topk_prob": False,
            "routed_scaling_factor": 16.0,
        },
        spelled("old", 1, 1e4),
        expert_gain=0.15,
    )
    add("v3", NANO, v3, V3_ROUTER, noaux, spelled("old", 1, 1e4, nano_yarn), {"num_nextn_predict_layers": 1}, mtp=True)
    add(
        "v3_fp8",
        NANO,
        fp8_sizes,
        v3,
        V3_ROUTER,
        noaux,
        spelled("old", 1, 1e4, yarn(40, 4096, 1.0)),
        {"quantization_config": block},
        dtype="BF16",
        fp8="float",
        rounded=True,
        lengths=(40, 17),
        positions="subset",
    )
    add(
        "v32",
        NANO,
        v32,
        NANO_INDEX,
        V3_ROUTER,
        noaux,
        spelled("old", 1, 1e4, nano_yarn),
        {"num_nextn_predict_layers": 1},
        mtp=True,
    )
    add(
        "v32_fp8",
        NANO,
        fp8_sizes,
        v32,
        KDIMS_INDEX,
        {"index_topk": 16},
        V3_ROUTER,
        noaux,
        spelled("old", 1, 1e4, yarn(40, 4096, 1.0)),
        {"quantization_config": {**block, "scale_fmt": "ue8m0"}},
        dtype="BF16",
        fp8="ue8m0",
        rounded=True,
        lengths=(30, 20),
        positions="subset",
    )
    add(
        "v32_bf16",
        NANO,
        {"num_hidden_layers": 3},
        v32,
        NANO_INDEX,
        V3_ROUTER,
        noaux,
        spelled("old", 1, 1e4, nano_yarn),
        lengths=(20, 14),
        dtype="BF16",
        rounded=True,
    )
    add(
        "glm5",
        NANO,
        {"qk_nope_head_dim": 24, "v_head_dim": 32},
        glm5,
        NANO_INDEX,
        ONE_GROUP,
        spelled("new", 1, 1e6),
        mlp_types(1, 4),
        {
            "indexer_types": ["full", "shared", "full", "shared"],
            "num_nextn_predict_layers": 1,
            "index_share_for_mtp_iteration": True,
        },
        indexer_types=["full", "shared", "full", "shared"],
        mtp=True,
    )
    add(
        "glm47f",
        NANO,
        {"num_attention_heads": 5, "num_key_value_heads": 5, "qk_nope_head_dim": 24, "v_head_dim": 32},
        flash,
        ONE_GROUP,
        spelled("new", 1, 1e6),
        mlp_types(1, 4),
        {"num_nextn_predict_layers": 1},
        mtp=True,
    )
    # L0 1024 puts the step of beta 1/1 between pairs 1 and 2, where 32/1 would ramp from pair 0.
    add(
        "k2",
        NANO,
        v3,
        {"model_type": "kimi_k2", "routed_scaling_factor": 2.827, "num_nextn_predict_layers": 0},
        ONE_GROUP,
        noaux,
        spelled("old", 1, 5e4, yarn(32, 1024, 1.0, beta_fast=1, beta_slow=1)),
    )
    add(
        "moonlight",
        NANO,
        v3,
        {
            "rms_norm_eps": 1e-5,
            "q_lora_rank": None,
            "n_shared_experts": 2,
            "routed_scaling_factor": 2.446,
            "num_nextn_predict_layers": 0,
        },
        ONE_GROUP,
        noaux,
        spelled("old", 1, 5e4),
        dtype="F16",
    )
    wide = {"qk_nope_head_dim": 192, "v_head_dim": 256}
    kdims = {"lengths": (200, 97), "positions": "subset"}
    real_yarn = yarn(40, 4096, 1.0)
    add(
        "v3_kdims",
        KDIMS,
        v3,
        V3_ROUTER,
        noaux,
        spelled("new", 1, 1e4, real_yarn),
        {"first_k_dense_replace": 1},
        **kdims
    )
    add(
        "v3_kdims_bf16",
        KDIMS,
        v3,
        V3_ROUTER,
        noaux,
        spelled("new", 1, 1e4, real_yarn),
        {"first_k_dense_replace": 1},
        dtype="BF16",
        rounded=True,
        **kdims
    )
    add(
        "v32_kdims",
        KDIMS,
        v32,
        KDIMS_INDEX,
        V3_ROUTER,
        noaux,
        spelled("new", 1, 1e4, real_yarn),
        mlp_types(1, 2),
        served=True,
        **kdims
    )
    add(
        "glm5_kdims",
        KDIMS,
        wide,
        glm5,
        KDIMS_INDEX,
        ONE_GROUP,
        spelled("old", 1, 1e6),
        {"index_topk_freq": 2, "index_skip_topk_offset": 1},
        indexer_types=["full", "shared"],
        **kdims
    )
    add(
        "glm47f_kdims",
        KDIMS,
        wide,
        {"num_attention_heads": 20, "num_key_value_heads": 20},
        flash,
        ONE_GROUP,
        spelled("old", 1, 1e6),
        **kdims
    )
    return cases
