// checkpoint_run FILE fp16|fp32: a short training run that writes a checkpoint after every second batch, and goes on from
// FILE if that exists. Prints a fingerprint of everything that it has trained.

#include <cstdio>
#include <filesystem>

#include "callbacks/learner.h"
#include "callbacks/save_model.h"
#include "engine/ops/elementwise.h"
#include "engine/random.h"
#include "nn/nn.h"

using namespace halfgrad;

namespace {

std::uint64_t fingerprint(const Tensor& x, std::uint64_t hash) {  // FNV-1a of the bytes
  const Tensor dense = x.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(dense.raw_data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(dense.numel()) * size_of(dense.dtype()); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001B3;
  return hash;
}

void run(const std::string& path, bool fp16) {
  manual_seed(1);
  nn::Sequential model(nn::Linear(16, 32), nn::BatchNorm1d(32), nn::ReLU(), nn::Dropout(0.25), nn::Linear(32, 4));
  const Tensor x = randn({256, 16});
  const data::DataLoader loader(data::TensorDataset(x, randint(0, 4, {256})), {.batch_size = 16, .shuffle = true});
  const SaveModelOptions often{.path = path, .every = SaveModelOptions::Every::batches, .batches = 2};
  Learner learn({loader, {}}, model, nn::cross_entropy,
                {.callbacks = {std::make_shared<SaveModel>(often)}, .silent = true});
  if (fp16) learn.to_fp16({.max_noskip = 10});
  if (std::filesystem::exists(path)) learn.resume(path);
  learn.fit_one_cycle(3, 1e-2);

  std::uint64_t hash = 0xCBF29CE484222325;
  for (const auto& [name, tensor] : model.state_dict()) hash = fingerprint(tensor, hash);
  for (const auto& [name, tensor] : learn.optimizer().state_dict().tensors) hash = fingerprint(tensor, hash);
  std::printf("%016llx\n", static_cast<unsigned long long>(hash));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    check(argc == 3, "usage: checkpoint_run FILE fp16|fp32");
    run(argv[1], std::string(argv[2]) == "fp16");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_run: %s\n", error.what());
    return 1;
  }
}
