#!/usr/bin/env python3
"""The training steps of bench_step in PyTorch: the same models, batches, loss and optimizer.

    pytorch_peer.py [--threads N] [--model mlp|cnn|resnet ...] [--csv FILE]

Rows: fp32 (channels-last memory), and CPU autocast in bfloat16 and, where this PyTorch supports it, in half. Times are
medians over the steps, in milliseconds, of forward, backward, step and all of them together; as many steps as fit into
about ten seconds, at most 100.
"""
import argparse
import csv
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("pytorch_peer.py: PyTorch is not installed (pip install torch)")


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10))


def conv_bn(inputs, outputs, kernel, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Sequential(conv_bn(inputs, outputs, 3, stride), nn.ReLU(), conv_bn(outputs, outputs, 3, 1))
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x):
        return torch.relu(self.main(x) + self.shortcut(x))


def resnet():
    layers, inputs = [conv_bn(1, 64, 3, 1), nn.ReLU()], 64
    for outputs in (64, 128, 256, 512):
        layers += [BasicBlock(inputs, outputs, 1 if outputs == 64 else 2), BasicBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


MODELS = {"mlp": (mlp, 64, 28), "cnn": (cnn, 128, 28), "resnet": (resnet, 64, 32)}


def adamw(parameters):
    try:
        return torch.optim.AdamW(parameters, fused=True)
    except RuntimeError:  # older versions have the fused one on GPUs only
        return torch.optim.AdamW(parameters)


def measure(name, dtype):
    make, batch, size = MODELS[name]
    torch.manual_seed(1)
    model = make().to(memory_format=torch.channels_last)
    optimizer = adamw(model.parameters())
    x = torch.randn(batch, 1, size, size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,))
    times = {"forward": [], "backward": [], "step": [], "total": []}
    # The half path needs a loss scaler; torch.amp.GradScaler has a CPU form in newer versions only.
    scale = 65536.0 if dtype == torch.float16 else 1.0
    begin = time.perf_counter()
    while len(times["total"]) < 2 or (len(times["total"]) <= 100 and time.perf_counter() - begin < 10):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            output = model(x)
        loss = nn.functional.cross_entropy(output.float(), y)
        forward = time.perf_counter()
        (loss * scale).backward()
        backward = time.perf_counter()
        if scale != 1:
            for p in model.parameters():
                p.grad.mul_(1 / scale)
        optimizer.step()
        optimizer.zero_grad()
        end = time.perf_counter()
        for key, value in zip(times, (forward - start, backward - forward, end - backward, end - start)):
            times[key].append(1e3 * value)
    return {key: statistics.median(values[1:]) for key, values in times.items()}  # the first step is slow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} thread(s)\n")
    columns = ["model", "batch", "precision", "total", "to fp32", "forward", "backward", "step"]
    print("".join(f"{c:>10}" for c in columns))
    rows = []
    for name in options.model or MODELS:
        fp32 = None
        for precision, dtype in (("fp32", torch.float32), ("bfloat16", torch.bfloat16), ("half", torch.float16)):
            try:
                result = measure(name, dtype)
            except (RuntimeError, ValueError) as error:
                print(f"{name:>10}{MODELS[name][1]:>10}{precision:>10}  not supported: {str(error).splitlines()[0]}")
                continue
            fp32 = fp32 or result["total"]
            numbers = [result["total"], result["total"] / fp32, result["forward"], result["backward"], result["step"]]
            row = [name, MODELS[name][1], precision] + [f"{v:.3f}" for v in numbers]
            rows.append(row)
            print("".join(f"{c:>10}" for c in row), flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows([columns] + rows)


if __name__ == "__main__":
    main()
