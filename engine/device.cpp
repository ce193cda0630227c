#include "engine/device.h"

#include "engine/error.h"

namespace halfgrad {

std::string Device::str() const { return is_cpu() ? std::string("cpu") : fmt::format("cuda:{}", index); }

Device parse_device(const std::string& text) {
  if (text == "cpu") return Device::cpu();
  if (text == "cuda") return Device::cuda();
  if (text.rfind("cuda:", 0) == 0 && text.size() > 5 && text.size() < 8 &&
      text.find_first_not_of("0123456789", 5) == std::string::npos)
    return Device::cuda(std::stoi(text.substr(5)));
  fail("device: '{}' is none; expected cpu, cuda or cuda:N", text);
}

}  // namespace halfgrad
