// The emulation must notice every fault of planted_faults.h: by ending the program with a line that says what is wrong, by an
// error of the runtime, or because the result comes out wrong.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planted_faults.h"

using namespace cuda_emulation::testing;

namespace {

// Runs a program in a process of its own, and returns what it said: "" when it noticed nothing.
std::string outcome(const Fault& fault, bool reverse) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    cuda_emulation::options().reverse = reverse;
    try {
      fault.program();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s", error.what());
      _exit(EXIT_FAILURE);
    }
    _exit(EXIT_SUCCESS);
  }
  close(ends[1]);
  std::string said;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status)) return said + " and crashed";
  return WEXITSTATUS(status) == EXIT_SUCCESS ? "" : said;
}

}  // namespace

TEST_CASE("every planted fault is noticed, in one order of threads or the other") {
  std::vector<Fault> all;
  for (const auto& some :
       {faults_of_waiting(), faults_of_memory(), faults_of_threads(), faults_of_libraries(), faults_of_graphs()})
    all.insert(all.end(), some.begin(), some.end());
  CHECK(all.size() > 51);
  for (const Fault& fault : all) {
    const std::string forward = outcome(fault, false), backward = outcome(fault, true);
    const bool noticed =
        forward.find(fault.noticed) != std::string::npos || backward.find(fault.noticed) != std::string::npos;
    CHECK_MESSAGE(noticed, fault.name << ": expected '" << fault.noticed << "', it said '" << forward << "' and '"
                                      << backward << "'");
  }
}

TEST_CASE("a program without a fault is left alone") {
  const Fault none{"none",
                   [] {
                     const Stream stream;
                     const DeviceArray<float> x(50);
                     launch("fill", fill, 1, 64, stream.get(), x.data(), 50, 3.0F);
                     expect(x.values(stream) == std::vector<float>(50, 3.0F));
                   },
                   ""};
  CHECK(outcome(none, false) == "");
  CHECK(outcome(none, true) == "");
  const Fault no_graph{"none of a graph", use_graphs_correctly, ""};
  CHECK(outcome(no_graph, false) == "");
  CHECK(outcome(no_graph, true) == "");
  const Fault no_library{"none of a library", use_libraries_correctly, ""};
  CHECK(outcome(no_library, false) == "");
}
