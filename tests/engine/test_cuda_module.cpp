// How the module with the CUDA backend is found, and what is said when it is not. None of it needs CUDA.

#include <doctest/doctest.h>

#include <cstdlib>

#include "engine/cuda/cuda.h"
#include "engine/cuda/module.h"
#include "engine/error.h"
#include "engine/tensor.h"
#include "tests/files.h"

using namespace halfgrad;
using cuda::open_module;
using cuda::OpenedModule;

namespace {
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("a module of this version is opened") {
  const OpenedModule opened = open_module({MODULE_OF_THIS_VERSION});
  REQUIRE(opened.module);
  CHECK(opened.failures.empty());
  std::string why_none;
  CHECK(opened.module->gpus(why_none) == 0);
  CHECK(why_none == "this is a test");
}

TEST_CASE("the first that can be opened is taken, and what was tried before is no matter") {
  CHECK(open_module({"/nonexistent/module.so", MODULE_OF_ANOTHER_VERSION, MODULE_OF_THIS_VERSION}).module);
}

TEST_CASE("what cannot be opened is listed with the reasons") {
  const Folder folder;
  const std::string text_file = (folder.path / "text.so").string();
  std::ofstream(text_file) << "this is no shared library";
  const OpenedModule none = open_module({"/nonexistent/module.so", text_file, "libm.so.6", MODULE_OF_ANOTHER_VERSION});
  CHECK_FALSE(none.module);
  CAPTURE(none.failures);
  CHECK(contains(none.failures, "/nonexistent/module.so: cannot open shared object file: No such file or directory; "));
  CHECK(contains(none.failures, text_file + ": "));
  CHECK(contains(none.failures, "libm.so.6: is no CUDA module of halfgrad; "));
  CHECK(contains(none.failures, MODULE_OF_ANOTHER_VERSION ": is of halfgrad 0.0.1, expected 0."));
  CHECK(none.failures.find('\n') == std::string::npos);
  CHECK(open_module({}).failures.empty());
}

TEST_CASE("HALFGRAD_CUDA_MODULE names the only candidate") {
  const char* before = std::getenv("HALFGRAD_CUDA_MODULE");
  const std::string kept = before ? before : "";
  setenv("HALFGRAD_CUDA_MODULE", "/some/where.so", 1);
  const std::vector<std::string> named = cuda::module_candidates();
  setenv("HALFGRAD_CUDA_MODULE", "", 1);
  const std::vector<std::string> found = cuda::module_candidates();
  if (before)
    setenv("HALFGRAD_CUDA_MODULE", kept.c_str(), 1);
  else
    unsetenv("HALFGRAD_CUDA_MODULE");
  CHECK(named == std::vector<std::string>{"/some/where.so"});
  // Beside the program, where the linker looks, where halfgrad is installed; or nothing, in a build without CUDA.
  CHECK((found.empty() || found.size() == 3));
  for (const std::string& candidate : found) CHECK(contains(candidate, "libhalfgrad_cuda.so"));
}

TEST_CASE("without a GPU the error says what is missing, in one line, and the program goes on") {
  if (cuda::is_available()) return;  // tests/cuda is for that
  try {
    empty({2}, f32, Device::cuda());
    CHECK(false);
  } catch (const Error& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.starts_with("cuda:0: "));
    CHECK((contains(text, "this build of halfgrad has no CUDA backend") || contains(text, "no GPU was found: ") ||
           contains(text, "the CUDA backend could not be opened (HALFGRAD_CUDA_MODULE names its file): ")));
    CHECK(contains(text, "use the device cpu"));
    CHECK(text.find('\n') == std::string::npos);
  }
  CHECK_THROWS_AS(cuda::backend(-1), Error);
  CHECK(ones({1}).item<int>() == 1);
}
