// Kills a run that saves all the time, at random moments: whatever file it leaves loads, and a run that goes on from it
// ends with the bits of one that was not disturbed. `--kills=N` says how often.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "engine/io/safetensors.h"
#include "engine/random.h"
#include "tests/files.h"

using namespace halfgrad;

namespace {

int kills = 20;

/// Starts checkpoint_run, its output into a file.
pid_t start(const std::string& checkpoint, const std::string& precision, const std::string& output) {
  std::string program = CHECKPOINT_RUN, path = checkpoint, mode = precision;
  char* const arguments[] = {program.data(), path.data(), mode.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  pid_t pid = 0;
  REQUIRE(posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

/// The fingerprint of a run that goes to its end.
std::string finish(const std::string& checkpoint, const std::string& precision, const std::string& output) {
  int status = 0;
  REQUIRE(waitpid(start(checkpoint, precision, output), &status, 0) > 0);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return contents(output);
}

}  // namespace

TEST_CASE("a run that is killed at any moment leaves a checkpoint that loads and that goes on to the same bits") {
  const Folder folder;
  const std::string checkpoint = folder.path / "run.safetensors", output = folder.path / "output";
  Generator generator(1);
  for (const char* precision : {"fp32", "fp16"}) {
    std::filesystem::remove(checkpoint);
    const auto begin = std::chrono::steady_clock::now();
    const std::string undisturbed = finish(checkpoint, precision, output);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    REQUIRE(undisturbed.size() == 17);

    int left_files = 0, in_the_middle = 0, runs = 0;
    for (; in_the_middle < kills / 2; ++runs) {  // those that came to their end before do not count
      REQUIRE(runs < 10 * kills);
      std::filesystem::remove(checkpoint);
      const pid_t pid = start(checkpoint, precision, output);
      std::this_thread::sleep_for(seconds * generator.next_uniform());
      ::kill(pid, SIGKILL);
      int status = 0;
      REQUIRE(waitpid(pid, &status, 0) == pid);
      in_the_middle += WIFSIGNALED(status);
      for (const auto& file : std::filesystem::directory_iterator(folder.path)) {
        if (file.path() == output) continue;
        ++left_files;
        CHECK_NOTHROW(load_safetensors(file.path()));
      }
      CHECK(finish(checkpoint, precision, output) == undisturbed);
    }
    MESSAGE(std::string(precision) << ": " << in_the_middle << " of " << runs << " runs were killed before their end; "
                                   << left_files << " files were left");
    CHECK(left_files > 0);
  }
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--kills=", 8) == 0) kills = std::atoi(argv[i] + 8);
  return doctest::Context(argc, argv).run();
}
