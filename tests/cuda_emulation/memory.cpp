#include "memory.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <vector>

#include "block.h"
#include "report.h"

namespace cuda_emulation {

namespace {

constexpr unsigned char kUnwritten = 0xFF, kMargin = 0xA5;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kKeptClosed = 256;  // released blocks whose addresses are not used again yet

struct Block {
  char* pages;
  std::size_t page_bytes;  // the closed page at the end included
  char* begin;
  std::size_t bytes;
  char* end() const { return pages + page_bytes - page_size(); }  // of what may be touched
  static std::size_t page_size() {
    static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return size;
  }
  bool holds(const char* address) const { return address >= pages && address < pages + page_bytes; }
};

std::map<const char*, Block> live;  // by where their pages begin
std::deque<Block> released;
std::size_t in_use = 0;
std::vector<const Block*> opened;
thread_local int accesses = 0;  // DeviceAccesses of this thread

const Block* find(const void* address) {
  const auto* const p = static_cast<const char*>(address);
  auto after = live.upper_bound(p);
  if (after == live.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  return block.holds(p) ? &block : nullptr;
}

// Opens or closes all but the last page.
void set_protection(const Block& block, int protection) {
  mprotect(block.pages, static_cast<std::size_t>(block.end() - block.pages), protection);
}

// Somebody touches a closed page.
void on_access(int signal, siginfo_t* info, void*) {
  const auto* const address = static_cast<const char*>(info->si_addr);
  if (const Block* block = find(address)) {
    const std::string size = std::to_string(block->bytes);
    if (accesses > 0 && address < block->end()) {
      set_protection(*block, PROT_READ | PROT_WRITE);
      opened.push_back(block);
      return;
    }
    if (accesses > 0)
      fault("out of bounds: byte " + std::to_string(address - block->begin) + " of a block of " + size + " bytes");
    fault("the host touches device memory (byte " + std::to_string(address - block->begin) + " of a block of " + size +
          "); copy it first");
  }
  for (const Block& block : released)
    if (block.holds(address))
      fault("use after free: byte " + std::to_string(address - block.begin) + " of a block of " +
            std::to_string(block.bytes) + " bytes that was freed");
  if (kernel_is_running()) fault(fmt::format("out of bounds: address {} is in no block", info->si_addr));
  std::signal(signal, SIG_DFL);  // not ours: it happens once more and ends the program
}

// Again and again, because doctest installs its own handler for every test case.
void watch_accesses() {
  struct sigaction action = {};
  action.sa_sigaction = on_access;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

DeviceAccess::DeviceAccess() {
  if (accesses++ == 0) watch_accesses();
}
DeviceAccess::~DeviceAccess() {
  if (--accesses > 0) return;
  for (const Block* block : opened) set_protection(*block, PROT_NONE);
  opened.clear();
}

void* allocate(std::size_t bytes) {
  if (bytes > kCapacity - in_use) return nullptr;
  watch_accesses();
  const std::size_t page = Block::page_size();
  const std::size_t body = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  Block block{};
  block.bytes = bytes;
  block.page_bytes = (body + page - 1) / page * page + page;
  void* const memory = mmap(nullptr, block.page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  block.pages = static_cast<char*>(memory);
  block.begin = block.end() - body;
  std::memset(block.pages, kMargin, block.page_bytes - page);
  std::memset(block.begin, kUnwritten, bytes);
  mprotect(block.pages, block.page_bytes, PROT_NONE);
  live.emplace(block.pages, block);
  in_use += bytes;
  return block.begin;
}

bool release(void* address) {
  const Block* const found = find(address);
  if (!found || found->begin != address) return false;
  const Block block = *found;
  live.erase(block.pages);
  in_use -= block.bytes;
  madvise(block.pages, block.page_bytes, MADV_DONTNEED);
  released.push_back(block);
  if (released.size() > kKeptClosed) {
    munmap(released.front().pages, released.front().page_bytes);
    released.pop_front();
  }
  return true;
}

std::size_t bytes_in_use() { return in_use; }

bool is_device_memory(const void* address) { return find(address) != nullptr; }

bool is_in_a_block(const void* address, std::size_t bytes) {
  const Block* const block = find(address);
  const auto* const p = static_cast<const char*>(address);
  return block && p >= block->begin && bytes <= block->bytes &&
         static_cast<std::size_t>(p - block->begin) <= block->bytes - bytes;
}

void check_margins(const std::string& writer) {
  for (const Block* block : opened) {
    const auto check = [&](const char* from, const char* to) {
      for (const char* p = from; p < to; ++p)
        if (static_cast<unsigned char>(*p) != kMargin)
          fault("out of bounds: " + writer + " wrote byte " + std::to_string(p - block->begin) + " of a block of " +
                std::to_string(block->bytes) + " bytes");
    };
    check(block->pages, block->begin);
    check(block->begin + block->bytes, block->end());
  }
}

}  // namespace cuda_emulation
