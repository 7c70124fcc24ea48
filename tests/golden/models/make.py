#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden model folders beside this file: tiny random Qwen3-MoE models, and what the transformers library computes.

    python3 make.py OUT        needs torch, transformers (4.51 or newer), safetensors; a minute on a CPU

Each folder holds a model as the hub has it (config.json, safetensors) and golden.safetensors:

    prompt   I32 [t]         token ids
    exact    F32 [t, vocab]  logits in float64
    half     F32 [t, vocab]  logits of the library's BF16 run
    sigma    F32 [t, vocab]  how far an implementation that rounds every number between its operations to BF16 is from `exact`,
                             as a standard deviation: independent errors of at most half a unit in the last place (2^-8 |a|,
                             which is sqrt(3) deviations) in all such numbers a, carried to the logits by the library's own
                             derivatives in float64
    greedy   I32 [64]        the likeliest continuation in float32, every step decided by at least 2^-10

The numbers of the quantised folders are quantised here, independently of Moiety, and the library runs the dequantised ones.
A seed is taken only if the choice of experts is far from tipping over and the library's own BF16 run is within 5 deviations."""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

PROMPT, STEPS, MARGIN, SIGMAS = 10, 64, 2.0**-10, 5

BASE = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=64, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1,
            mlp_only_layers=[], norm_topk_prob=True, tie_word_embeddings=False, max_position_embeddings=256,
            rms_norm_eps=1e-6, rope_theta=10000.0, initializer_range=0.25, attention_bias=False, hidden_act="silu",
            attention_dropout=0.0, use_sliding_window=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)

MODELS = {
    "plain": dict(),
    "dense": dict(num_hidden_layers=2, decoder_sparse_step=2, num_experts=3),
    "mlp-only": dict(mlp_only_layers=[1], num_experts=3),
    "tied": dict(num_hidden_layers=1, tie_word_embeddings=True, norm_topk_prob=False, num_experts_per_tok=3),
    "heads": dict(num_attention_heads=8, num_key_value_heads=1, head_dim=8, rope_theta=1000000.0, num_hidden_layers=1),
    "packed": dict(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, num_experts_per_tok=1, norm_topk_prob=False),
    "sharded": dict(num_hidden_layers=1, num_experts_per_tok=4),
    "fp8-block": dict(hidden_size=160, moe_intermediate_size=32, num_hidden_layers=1, num_experts=3, initializer_range=0.1),
    "mxfp8": dict(),
    "mxfp8-modelopt": dict(num_experts=3, num_hidden_layers=1),
    "mxfp4-blocks": dict(norm_topk_prob=False),
    "mxfp4": dict(num_experts=3, num_hidden_layers=1, hidden_size=64),
}


# ---- numbers ----

def e8m0(scale_exponent):
    return (scale_exponent + 127).clamp(0, 254).to(torch.uint8)


def mx_exponents(w, top):
    """Per block of 32 the least power of two that brings the largest magnitude down to `top`."""
    largest = w.abs().amax(-1).double()
    return torch.where(largest > 0, torch.ceil(torch.log2(largest / top)), torch.full_like(largest, -127.0)).clamp(-127, 127)


def to_mxfp8(w):
    blocks = w.float().reshape(*w.shape[:-1], -1, 32)
    e = mx_exponents(blocks, 448.0)
    codes = (blocks.double() * torch.exp2(-e).unsqueeze(-1)).float().to(torch.float8_e4m3fn)
    exact = codes.double() * torch.exp2(e).unsqueeze(-1)
    return codes.reshape(w.shape), e8m0(e), exact.reshape(w.shape)


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def to_mxfp4(w):
    blocks = w.double().reshape(*w.shape[:-1], -1, 32)
    e = mx_exponents(blocks, 6.0)
    scaled = blocks * torch.exp2(-e).unsqueeze(-1)
    code = (scaled.abs().unsqueeze(-1) - E2M1).abs().argmin(-1)
    exact = E2M1[code] * torch.sign(scaled) * torch.exp2(e).unsqueeze(-1)
    code = (code | ((scaled < 0).long() << 3)).to(torch.uint8)
    return code[..., 0::2] | code[..., 1::2] << 4, e8m0(e), exact.reshape(w.shape)  # [.., blocks, 16], [.., blocks]


def to_fp8_block(w):
    rows, cols = w.shape
    padded = torch.zeros(-(-rows // 128) * 128, -(-cols // 128) * 128)
    padded[:rows, :cols] = w.float()
    tiles = padded.reshape(padded.shape[0] // 128, 128, -1, 128)
    scale = (tiles.abs().amax((1, 3)) / 448.0).clamp(min=2.0**-60)
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :cols]
    codes = (w.float() / wide).to(torch.float8_e4m3fn)
    return codes, scale, codes.double() * wide.double()


# ---- names ----

def per_expert(state):
    """The library's state under the hub's per-expert names, whatever its version packs."""
    out = {}
    for name, t in state.items():
        stem, _, last = name.rpartition(".experts.")
        if last == "gate_up_proj":
            for e in range(t.shape[0]):
                gate, up = t[e].chunk(2, 0)
                out[f"{stem}.experts.{e}.gate_proj.weight"], out[f"{stem}.experts.{e}.up_proj.weight"] = gate, up
        elif last == "down_proj":
            for e in range(t.shape[0]):
                out[f"{stem}.experts.{e}.down_proj.weight"] = t[e]
        else:
            out[name] = t
    return {k: v.detach().clone().contiguous() for k, v in out.items()}


def packed(named, experts):
    out, seen = {}, {}
    for name, t in named.items():
        if ".experts." in name:
            stem, rest = name.split(".experts.")
            e, kind = rest.split(".")[:2]
            seen.setdefault(stem, {})[int(e), kind] = t
        else:
            out[name] = t
    for stem, w in seen.items():
        out[f"{stem}.experts.gate_up_proj"] = torch.stack([torch.cat([w[e, "gate_proj"], w[e, "up_proj"]]) for e in range(experts)])
        out[f"{stem}.experts.down_proj"] = torch.stack([w[e, "down_proj"] for e in range(experts)])
    return out


def put_back(model, named):
    """Gives the library's model the numbers `named`, in whatever form it holds them."""
    state = model.state_dict()
    experts = model.config.num_experts
    both = {**named, **packed(named, experts)}
    with torch.no_grad():
        for name, t in state.items():
            t.copy_(both[name if name in both else "model.embed_tokens.weight"].to(t.dtype))


def is_linear(name):
    return name.endswith("_proj.weight")


# ---- what is written, and the numbers that stand in it ----

def quantised(name, named, config):
    """tensors to write, exact numbers by per-expert name, quantization_config"""
    experts = config.num_experts
    out, exact = {}, {k: v.double() for k, v in named.items()}
    routers = [k[:-len(".weight")] for k in named if k.endswith("mlp.gate.weight")]
    keep = ["lm_head"] + routers
    if name == "fp8-block":
        for k, t in named.items():
            if not is_linear(k):
                out[k] = t
                continue
            out[k], out[k + "_scale_inv"], exact[k] = to_fp8_block(t)
        return out, exact, dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128], modules_to_not_convert=keep)
    if name in ("mxfp8", "mxfp8-modelopt"):
        for k, t in named.items():
            if not is_linear(k):
                out[k] = t
                continue
            out[k], out[k + "_scale"], exact[k] = to_mxfp8(t)
        if name == "mxfp8-modelopt":
            return out, exact, dict(quant_method="modelopt", quant_algo="MXFP8", group_size=32, exclude_modules=keep)
        weights = dict(num_bits=8, type="float", symmetric=True, strategy="group", group_size=32, dynamic=False, scale_dtype="torch.uint8")
        return out, exact, dict(quant_method="compressed-tensors", format="mxfp8-quantized", quantization_status="compressed", ignore=keep,
                                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)))
    if name == "mxfp4":
        for k, t in named.items():
            if not is_linear(k):
                out[k] = t
                continue
            stem = k[:-len("weight")]
            codes, out[stem + "weight_scale"], exact[k] = to_mxfp4(t)
            out[stem + "weight_packed"] = codes.reshape(t.shape[0], -1)
        weights = dict(num_bits=4, type="float", symmetric=True, strategy="group", group_size=32, dynamic=False, scale_dtype="torch.uint8")
        return out, exact, dict(quant_method="compressed-tensors", format="mxfp4-pack-quantized", quantization_status="compressed", ignore=keep,
                                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None)))
    if name == "mxfp4-blocks":
        for k, t in named.items():
            if ".experts." in k:
                exact[k] = to_mxfp4(t)[2]
        for k, t in packed(named, experts).items():
            if ".experts." not in k:
                out[k] = t
                continue
            out[k + "_blocks"], out[k + "_scales"], _ = to_mxfp4(t)
        return out, exact, dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
    return (packed(named, experts) if name == "packed" else named), exact, None


def save(folder, name, tensors, config, quantization):
    tensors = {k: v.contiguous() for k, v in tensors.items() if not (config["tie_word_embeddings"] and k == "lm_head.weight")}
    if name == "sharded":
        names, index = sorted(tensors), {}
        parts = [names[i::3] for i in range(3)]
        for i, part in enumerate(parts):
            file = f"model-{i + 1:05d}-of-00003.safetensors"
            save_file({k: tensors[k] for k in part}, os.path.join(folder, file), metadata={"format": "pt"})
            index.update({k: file for k in part})
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump(dict(metadata=dict(total_size=size), weight_map=index), f, indent=1)
    else:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    written = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", torch_dtype="bfloat16", **{k: v for k, v in config.items() if v is not None})
    if quantization:
        written["quantization_config"] = quantization
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(written, f, indent=1)


# ---- what the library computes ----

def every_number(model, ids):
    """Logits and the numbers between operations: outputs of all modules, their inputs, and what attention works on."""
    sites = []

    def keep(_, inputs, output):
        for x in [*inputs, *(output if isinstance(output, tuple) else [output])]:
            if torch.is_tensor(x) and x.is_floating_point() and x.requires_grad:
                sites.append(x)

    hooks = [m.register_forward_hook(keep) for m in model.modules()]
    logits = model(ids, use_cache=False).logits[0]
    for h in hooks:
        h.remove()
    unique = {id(x): x for x in sites}
    return logits, list(unique.values())


def sigma_of(model, ids):
    logits, sites = every_number(model, ids)
    variance = torch.zeros_like(logits)
    for t in range(logits.shape[0]):
        eye = torch.eye(logits.shape[1], dtype=logits.dtype)
        grads = torch.autograd.grad(logits[t], sites, grad_outputs=eye, is_grads_batched=True, retain_graph=True, allow_unused=True)
        for g, x in zip(grads, sites):
            if g is not None:
                variance[t] += (g * x.detach()).square().flatten(1).sum(1)
    # Queries, keys and probabilities inside attention, and the weighted outputs of experts, are no module's: each is made
    # from numbers that are, by operations that pass relative errors on, so the variance is doubled for them.
    return 2.0**-8 / 3.0**0.5 * (2.0 * variance).sqrt(), logits.detach()


def greedy(model, ids):
    """The continuation, and by how much its closest step was decided."""
    out, least = ids[0].tolist(), float("inf")
    with torch.no_grad():
        for _ in range(STEPS):
            top = model(torch.tensor([out]), use_cache=False).logits[0, -1].topk(2)
            least = min(least, float(top.values[0] - top.values[1]))
            out.append(int(top.indices[0]))
    return out[ids.shape[1]:], least


def routing_margin(model, ids):
    gaps = []

    def look(module, _, output):
        z = output[0] if isinstance(output, tuple) else output
        z = z.reshape(-1, z.shape[-1])
        if z.shape[-1] != model.config.num_experts or model.config.num_experts_per_tok >= z.shape[-1]:
            return
        top = z.sort(-1, descending=True).values
        gaps.append(float((top[:, model.config.num_experts_per_tok - 1] - top[:, model.config.num_experts_per_tok]).min()))

    hooks = [m.register_forward_hook(look) for n, m in model.named_modules() if n.endswith("mlp.gate")]
    with torch.no_grad():
        model(ids, use_cache=False)
    for h in hooks:
        h.remove()
    return min(gaps, default=1.0)


def make(name, changes, seed):
    settings = {**BASE, **changes}
    torch.manual_seed(seed)
    config = Qwen3MoeConfig(**settings)
    config._attn_implementation = "eager"
    for key in ("_experts_implementation",):
        setattr(config, key, "eager")
    model = Qwen3MoeForCausalLM(config).eval()
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(1 + 0.2 * torch.randn_like(p) if n.endswith("norm.weight") else torch.randn_like(p) * settings["initializer_range"])
    named = per_expert({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
    tensors, exact, quantization = quantised(name, named, config)
    ids = torch.randint(0, settings["vocab_size"], (1, PROMPT))
    double = model.double()
    put_back(double, exact)
    margin = routing_margin(double, ids)
    if margin < 0.06:
        return f"experts are within {margin:.4f} of another choice"
    sigma, logits = sigma_of(double, ids)
    half = Qwen3MoeForCausalLM(config).eval().to(torch.bfloat16)
    put_back(half, exact)
    with torch.no_grad():
        rounded = half(ids, use_cache=False).logits[0].double()
    used = float(((rounded - logits).abs() / sigma).max())
    if quantization is None and used > SIGMAS:
        return f"the library's BF16 run is {used:.2f} deviations off"
    single = double.float()
    put_back(single, exact)
    tokens, least = greedy(single, ids)
    if least < MARGIN:
        return f"a step was decided by {least:.5f}"
    folder = os.path.join(sys.argv[1], name)
    os.makedirs(folder, exist_ok=True)
    save(folder, name, tensors, settings, quantization)
    golden = dict(prompt=ids[0].to(torch.int32), exact=logits.float(), half=rounded.float(), sigma=sigma.float(), greedy=torch.tensor(tokens, dtype=torch.int32))
    save_file({k: v.contiguous() for k, v in golden.items()}, os.path.join(folder, "golden.safetensors"))
    print(f"{name}: seed {seed}, experts apart by {margin:.3f}, steps by {least:.5f}, BF16 run {used:.2f} deviations off, "
          f"median deviation {float(sigma.median()):.4f} beside logits of {float(logits.std()):.3f}, {len(set(tokens))} different tokens", flush=True)
    return None


def main():
    import transformers
    print("torch", torch.__version__, "transformers", transformers.__version__, flush=True)
    torch.set_num_threads(8)
    for name, changes in MODELS.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        for seed in range(1, 60):
            why = make(name, changes, seed)
            if why is None:
                break
            print(f"  {name} seed {seed}: {why}", flush=True)
        else:
            sys.exit(f"{name}: no seed will do")


main()
