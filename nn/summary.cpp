#include <algorithm>
#include <unordered_set>

#include "nn/walk.h"

namespace halfgrad::nn {

namespace {

struct Row {
  std::string layer, output = "not called", dtypes = "";
  std::int64_t parameters = 0;
};

// Evaluation mode, with a hook on every module that notes the shape of its output, for as long as one lives.
class Watch {
 public:
  Watch(const NamedModules& modules, std::vector<Row>& rows) {
    for (std::size_t i = 0; i < modules.size(); ++i) {
      Module& module = *modules[i].second;
      const auto note = [&row = rows[i]](Module&, const Tensors&, const Tensor& output) {
        row.output = output.shape().str();
        return Tensor();
      };
      watched_.push_back({&module, module.is_training(), module.register_forward_hook(note)});
    }
    modules[0].second->eval();
  }
  ~Watch() {
    for (auto& [module, was_training, hook] : watched_) {  // parents first, so that each child has the last word
      module->train(was_training);
      module->remove_hook(hook);
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Watched {
    Module* module;
    bool was_training;
    int hook;
  };
  std::vector<Watched> watched_;
};

std::string with_thousands(std::int64_t n) {
  return n < 1000 ? std::to_string(n) : fmt::format("{},{:03}", with_thousands(n / 1000), n % 1000);
}

}  // namespace

std::string summary(Module& model, const Shape& input_shape) {
  return summary_with(model, Tensors{zeros(input_shape, model.dtype())});
}

std::string summary_with(Module& model, const Tensors& inputs) {
  const NamedModules modules = model.named_modules();
  std::vector<Row> rows(modules.size());
  {
    const NoGrad no_grad;
    const Watch watch(modules, rows);
    model(inputs);
  }

  std::unordered_set<const TensorImpl*> seen;  // a tied parameter counts where it appears first
  std::size_t layer_width = 5, output_width = 12;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto& [path, module] = modules[i];
    Row& row = rows[i];
    each_tensor(*module, [&, owner = module](const std::string&, Tensor& x, Role role, Module& m) {
      if (&m != owner || role != Role::parameter || !seen.insert(x.impl()).second) return;
      row.parameters += x.numel();
      if (row.dtypes.find(name_of(x.dtype())) == std::string::npos)
        row.dtypes += (row.dtypes.empty() ? "" : ", ") + std::string(name_of(x.dtype()));
    });
    row.layer = fmt::format("{}{}{}", path, path.empty() ? "" : " ", module->describe());
    layer_width = std::max(layer_width, row.layer.size());
    output_width = std::max(output_width, row.output.size());
  }

  const auto line = [&](const std::string& layer, const std::string& output, const std::string& parameters,
                        const std::string& dtypes) {
    std::string text =
        fmt::format("{:<{}}  {:<{}}  {:>12}  {}", layer, layer_width, output, output_width, parameters, dtypes);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string table = line("layer", "output shape", "parameters", "dtype");
  for (const Row& row : rows)
    table += line(row.layer, row.output, row.parameters ? with_thousands(row.parameters) : "", row.dtypes);
  const std::int64_t total = model.num_parameters(), trainable = model.num_parameters(true);
  return table + fmt::format("parameters: {}, of which trainable {}, frozen {}\n", with_thousands(total),
                             with_thousands(trainable), with_thousands(total - trainable));
}

}  // namespace halfgrad::nn
