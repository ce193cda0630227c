#!/usr/bin/env python3
"""The training steps of bench_step in PyTorch, or with --device cuda those of bench_gpu: the same models, batches, loss
and optimizer.

    pytorch_peer.py [--device cpu|cuda] [--threads N] [--model mlp|cnn|resnet ...] [--quick] [--csv FILE]
    pytorch_peer.py --convolutions [--threads N] [--quick] [--csv FILE]

CPU rows: fp32 (channels-last memory), and autocast in bfloat16 and, where this PyTorch supports it, in half. Times are
medians over the steps, in milliseconds, of forward, backward, step and all of them together; as many steps as fit into
about ten seconds, at most 100. GPU rows: f32 without TF32, and autocast in half with GradScaler, channels-last memory,
cuDNN's fastest algorithms; each step uploads its batch, and the clock is stopped when the GPU is done. They have the
columns of bench_gpu. --convolutions: the first rows of bench_conv instead, in GFLOP/s of f32, channels-last memory.
"""
import argparse
import contextlib
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


MAKE = {"mlp": mlp, "cnn": cnn, "resnet": resnet}
# Images in a batch and their size, as in bench_step.cpp and bench_gpu.cpp.
SIZES = {"cpu": {"mlp": (64, 28), "cnn": (128, 28), "resnet": (64, 32)},
         "cuda": {"mlp": (64, 28), "cnn": (128, 28), "resnet": (128, 64)}}


def adamw(parameters):
    try:
        return torch.optim.AdamW(parameters, fused=True)
    except (RuntimeError, TypeError):  # older versions have the fused one on GPUs only, or not at all
        return torch.optim.AdamW(parameters)


def grad_scaler(enabled):
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)  # before 2.3


class Training:
    """One model in one precision, and the three parts of its step."""

    def __init__(self, name, dtype, device):
        batch, size = SIZES[device][name]
        torch.manual_seed(1)
        self.device, self.dtype = device, dtype
        self.model = MAKE[name]().to(device, memory_format=torch.channels_last)
        self.optimizer = adamw(self.model.parameters())
        self.x = torch.randn(batch, 1, size, size).contiguous(memory_format=torch.channels_last)
        self.y = torch.randint(0, 10, (batch,))
        if device == "cuda":
            self.x, self.y = self.x.pin_memory(), self.y.pin_memory()
        # The half path needs a loss scaler; GradScaler has a CPU form in newer versions only.
        half = dtype == torch.float16
        self.scaler = grad_scaler(enabled=half and device == "cuda")
        self.scale = 65536.0 if half and device == "cpu" else 1.0

    def forward(self):
        x, y = (t.to(self.device, non_blocking=True) for t in (self.x, self.y))
        plain = self.dtype == torch.float32  # which some versions do not take, even to turn autocast off
        with contextlib.nullcontext() if plain else torch.autocast(self.device, dtype=self.dtype):
            output = self.model(x)
        return nn.functional.cross_entropy(output.float(), y)

    def backward(self, loss):
        self.scaler.scale(loss * self.scale).backward()

    def step(self):
        if self.scale != 1:
            for p in self.model.parameters():
                p.grad.mul_(1 / self.scale)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def measure_cpu(name, dtype, quick):
    training = Training(name, dtype, "cpu")
    times = {"forward": [], "backward": [], "step": [], "total": []}
    steps, seconds = (1, 0) if quick else (100, 10)
    begin = time.perf_counter()
    while len(times["total"]) < 2 or (len(times["total"]) <= steps and time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        loss = training.forward()
        forward = time.perf_counter()
        training.backward(loss)
        backward = time.perf_counter()
        training.step()
        end = time.perf_counter()
        for key, value in zip(times, (forward - start, backward - forward, end - backward, end - start)):
            times[key].append(1e3 * value)
    return {key: statistics.median(values[1:]) for key, values in times.items()}  # the first step is slow


def measure_gpu(name, dtype, quick):
    """Milliseconds of a step: the median of five samples of half a second or some, after a warm-up."""
    training = Training(name, dtype, "cuda")

    def run(steps):
        start = time.perf_counter()
        for _ in range(steps):
            training.backward(training.forward())
            training.step()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / steps

    run(10)
    steps = 1 if quick else max(1, round(500 / run(10)))
    return statistics.median(run(steps) for _ in range(1 if quick else 5))


def print_row(row, width):
    print(f"{row[0]:{width}}" + "".join(f"{c:>10}" for c in row[1:]), flush=True)


def cpu_table(options):
    columns = ["model", "batch", "precision", "total", "to fp32", "forward", "backward", "step"]
    print_row(columns, ">10")
    rows = []
    for name in options.model or MAKE:
        fp32 = None
        for precision, dtype in (("fp32", torch.float32), ("bfloat16", torch.bfloat16), ("half", torch.float16)):
            batch = SIZES["cpu"][name][0]
            try:
                result = measure_cpu(name, dtype, options.quick)
            except (RuntimeError, ValueError) as error:
                print(f"{name:>10}{batch:>10}{precision:>10}  not supported: {str(error).splitlines()[0]}")
                continue
            fp32 = fp32 or result["total"]
            numbers = [result["total"], result["total"] / fp32, result["forward"], result["backward"], result["step"]]
            rows.append([name, batch, precision] + [f"{v:.3f}" for v in numbers])
            print_row(rows[-1], ">10")
    return [columns] + rows


# Name, input and output channels, size of the image, stride: 3x3, padding 1, batch 64, as in bench_conv.cpp.
CONVOLUTIONS = [("3x3 32->64 28x28", 32, 64, 28, 1), ("3x3 64->64 14x14", 64, 64, 14, 1),
                ("3x3/2 64->128 28x28", 64, 128, 28, 2)]


def median_seconds(run, quick):
    """The median of 21 samples of about 10 ms."""
    start = time.perf_counter()
    run()
    calls = 1 if quick else max(1, round(0.01 / (time.perf_counter() - start)))
    times = []
    for _ in range(1 if quick else 21):
        run()  # brings its data back into the caches
        start = time.perf_counter()
        for _ in range(calls):
            run()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def convolution_table(options):
    columns = ["convolution, batch 64", "f32"]
    print_row(columns, 40)
    rows = []
    for name, inputs, outputs, size, stride in CONVOLUTIONS:
        def tensor(*shape):
            return torch.randn(*shape).contiguous(memory_format=torch.channels_last)
        x, w = tensor(64, inputs, size, size), tensor(outputs, inputs, 3, 3)
        dy = tensor(64, outputs, size // stride, size // stride)

        def gradient(of_x, of_w):
            return torch.ops.aten.convolution_backward(dy, x, w, None, [stride, stride], [1, 1], [1, 1], False, [0, 0], 1,
                                                       [of_x, of_w, False])
        passes = {"forward": lambda: nn.functional.conv2d(x, w, None, stride, 1),
                  "input grad": lambda: gradient(True, False), "weight grad": lambda: gradient(False, True)}
        for kind, run in passes.items():
            gflop = 2e-9 * dy.numel() * inputs * 9
            rows.append([f"{name} {kind}", f"{gflop / median_seconds(run, options.quick):.1f}"])
            print_row(rows[-1], 40)
    return [columns] + rows


def gpu_table(options):
    if not torch.cuda.is_available():
        sys.exit("pytorch_peer.py: this PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    columns = ["on the GPU", "unit", "f32", "of peak", "f16", "of peak", "f16/f32"]
    print_row(columns, 46)
    rows = []
    for name in options.model or MAKE:
        batch, size = SIZES["cuda"][name]
        single, mixed = (measure_gpu(name, dtype, options.quick) for dtype in (torch.float32, torch.float16))
        label = f"{name} step ({batch} x {size} x {size}) PyTorch"
        rows.append([label, "ms", f"{single:.3f}", "-", f"{mixed:.3f}", "-", f"{single / mixed:.2f}"])
        print_row(rows[-1], 46)
    return [columns] + rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=SIZES, default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", action="append", choices=MAKE)
    parser.add_argument("--convolutions", action="store_true", help="single convolutions instead of training steps")
    parser.add_argument("--quick", action="store_true", help="as few steps as possible")
    parser.add_argument("--csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} thread(s)\n")
    table = convolution_table if options.convolutions else cpu_table if options.device == "cpu" else gpu_table
    rows = table(options)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
