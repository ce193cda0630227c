#pragma once
// The shared module that holds the CUDA backend, and how it is found.

#include <string>
#include <vector>

#include "engine/backend.h"

namespace halfgrad::cuda {

/// What a module defines under the name `halfgrad_cuda_module`.
struct Module {
  const char* version;                 ///< of the halfgrad that it was built with
  int (*gpus)(std::string& why_none);  ///< how many GPUs answer, or 0 and the reason
  Backend& (*backend)(int index);      ///< index below gpus()
};
inline constexpr const char* kModuleSymbol = "halfgrad_cuda_module";

/// The module that was opened, or what was tried and why it failed.
struct OpenedModule {
  const Module* module = nullptr;
  std::string failures;
};

/// Opens the first that is a module of this version of halfgrad. A name without a slash is looked for as programs look
/// for their shared libraries.
OpenedModule open_module(const std::vector<std::string>& candidates);

/// Where this program looks: the file that the environment variable HALFGRAD_CUDA_MODULE names, or else beside the
/// program, where its shared libraries are looked for, and where halfgrad is installed. None when this build has no CUDA.
std::vector<std::string> module_candidates();

}  // namespace halfgrad::cuda
