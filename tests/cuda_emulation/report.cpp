#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "block.h"

namespace cuda_emulation {

Options& options() {
  static Options options = [] {
    Options o;
    const char* value = std::getenv("CUDA_EMULATION");
    std::istringstream words(value ? value : "");
    for (std::string word; std::getline(words, word, ',');) {
      if (word == "reverse")
        o.reverse = true;
      else if (word == "no_gpu")
        o.no_gpu = true;
      else
        fault("CUDA_EMULATION contains '" + word + "', expected reverse or no_gpu");
    }
    return o;
  }();
  return options;
}

void fault(const std::string& what) {
  std::fflush(nullptr);
  std::fprintf(stderr, "cuda emulation: %s [%s]\n", what.c_str(), current_position().c_str());
  std::_Exit(kFaultStatus);
}

}  // namespace cuda_emulation
