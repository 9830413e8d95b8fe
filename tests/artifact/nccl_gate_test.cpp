#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "cupti/abi/hooks_v1.h"
#include "tests/support/catch.h"

// Runs under LD_PRELOAD=libconvtrace.so (set by ctest), one process per case.
extern "C" {
int ncclAllReduce(const void*, void*, size_t, int, int, void*, void*) __attribute__((weak));
int ncclGroupStart() __attribute__((weak));
}

namespace {

using Function = int (*)();
using AllReduce = int (*)(const void*, void*, size_t, int, int, void*, void*);

void* open_library(const char* name) {
  void* library = dlopen((std::string(PROGRAMS "/") + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return library;
}

template <typename Type = Function>
Type symbol(void* handle, const char* name) {
  return reinterpret_cast<Type>(dlsym(handle, name));
}

bool is_in_preload(Function function) {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<void*>(function), &info) != 0);
  return std::string(info.dli_fname).ends_with("/libconvtrace.so");
}

struct Told {
  convtrace_nccl_call call;
  int result;          ///< -1: it begins
  bool has_user_rank;  ///< call.library lives as long as the call
};
std::vector<Told> told;

void note(const convtrace_nccl_call& call, int result) {
  const bool has_user_rank = call.library != nullptr && call.library->comm_user_rank != nullptr;
  told.push_back({call, result, has_user_rank});
}

void publish() {
  static const convtrace_hooks_v1 hooks = [] {
    convtrace_hooks_v1 table{};
    table.bytes = sizeof table;
    table.nccl_begins = [](const convtrace_nccl_call* call) { note(*call, -1); };
    table.nccl_ended = [](const convtrace_nccl_call* call, int result) { note(*call, result); };
    return table;
  }();
  auto* slot = symbol<std::atomic<const convtrace_hooks_v1*>*>(RTLD_DEFAULT, "convtrace_hooks_v1");
  REQUIRE(slot != nullptr);
  slot->store(&hooks);
}

}  // namespace

TEST_CASE("nccl gate: dlsym gives wrappers that reach the functions", "[artifact]") {
  void* nccl = open_library("libnccl.so.2");
  const struct {
    const char* name;
    int answer;
  } functions[] = {{"ncclAllReduce", 31},
                   {"ncclSend", 32},
                   {"ncclCommDestroy", 33},
                   {"ncclGroupStart", 34},
                   {"ncclGroupEnd", 35}};
  for (const auto& [name, answer] : functions) {
    CAPTURE(name);
    const auto function = symbol(nccl, name);
    CHECK(is_in_preload(function));
    CHECK(function() == answer);
  }
}

TEST_CASE("nccl gate: other functions come untouched, and none that the library lacks",
          "[artifact]") {
  void* nccl = open_library("libnccl.so.2");
  CHECK_FALSE(is_in_preload(symbol(nccl, "ncclGetVersion")));
  CHECK(symbol(nccl, "ncclGetVersion")() == 36);
  CHECK_FALSE(is_in_preload(symbol(nccl, "pncclAllReduce")));
  CHECK(symbol(nccl, "ncclAlltoAll") == nullptr);
  CHECK(symbol(RTLD_DEFAULT, "ncclAlltoAll") == nullptr);
  CHECK(dlerror() != nullptr);
}

TEST_CASE("nccl gate: without NCCL the names are not found, and a call says system error",
          "[artifact]") {
  dlerror();
  CHECK(dlsym(RTLD_DEFAULT, "ncclAllReduce") == nullptr);
  const char* error = dlerror();
  REQUIRE(error != nullptr);
  CHECK(std::string(error).find("nccl") != std::string::npos);
  REQUIRE(&ncclAllReduce != nullptr);  // bound as in a program that is linked with NCCL
  CHECK(ncclAllReduce(nullptr, nullptr, 0, 0, 0, nullptr, nullptr) == 2);
  CHECK(ncclGroupStart() == 2);
  open_library("libnccl.so.2");
  CHECK(ncclGroupStart() == 34);  // as soon as it is there
}

void check_copies(bool library_first) {
  const char* const names[] = {"libnccl.so.2", "libartifact_static_nccl.so"};
  const int own = library_first ? 30 : 60, later = library_first ? 60 : 30;
  void* const first = open_library(names[library_first ? 0 : 1]);
  const auto send = symbol(first, "ncclSend");
  CHECK(is_in_preload(send));
  CHECK(ncclGroupStart() == own + 4);  // of this program, which holds none
  void* const second = open_library(names[library_first ? 1 : 0]);
  CHECK(symbol(first, "calls_all_reduce")() == own + 1);
  CHECK(symbol(second, "calls_all_reduce")() == later + 1);
  CHECK(ncclGroupStart() == own + 4);
  CHECK(send() == own + 2);
  CHECK_FALSE(is_in_preload(symbol(second, "ncclSend")));
  CHECK(symbol(second, "ncclSend")() == later + 2);
}

TEST_CASE("nccl gate: each copy of NCCL is reached by who holds it, libnccl.so.2 first",
          "[artifact]") {
  check_copies(true);
}

TEST_CASE("nccl gate: each copy of NCCL is reached by who holds it, libnccl.so.2 last",
          "[artifact]") {
  check_copies(false);
}

void check_shim(bool shim_first) {
  void* const first = open_library(shim_first ? "libartifact_nccl_shim.so" : "libnccl.so.2");
  void* const second = open_library(shim_first ? "libnccl.so.2" : "libartifact_nccl_shim.so");
  void* const shim = shim_first ? first : second;
  symbol<void (*)(void*)>(shim, "shim_uses")(shim_first ? second : first);
  CHECK(ncclGroupStart() == (shim_first ? 94 : 34));  // as the loader would have bound it
  CHECK(symbol(shim, "ncclAllReduce")() == 131);
  CHECK(ncclAllReduce(nullptr, nullptr, 0, 0, 0, nullptr, nullptr) == (shim_first ? 131 : 31));
}

TEST_CASE("nccl gate: a library that takes NCCL's place, it first", "[artifact]") {
  check_shim(true);
}

TEST_CASE("nccl gate: a library that takes NCCL's place, NCCL first", "[artifact]") {
  check_shim(false);
}

TEST_CASE("nccl gate: the scope of the caller has what it has without wrappers", "[artifact]") {
  open_library("libnccl.so.2");  // RTLD_LOCAL
  CHECK(dlsym(RTLD_DEFAULT, "ncclAllReduce") == nullptr);
  CHECK(dlerror() != nullptr);
  void* const program = dlopen(nullptr, RTLD_NOW);
  CHECK(dlsym(program, "ncclAllReduce") == nullptr);
  REQUIRE(dlopen(PROGRAMS "/libnccl.so.2", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) != nullptr);
  CHECK(symbol(RTLD_DEFAULT, "ncclAllReduce")() == 31);
  CHECK(symbol(program, "ncclAllReduce")() == 31);
  CHECK(is_in_preload(symbol(program, "ncclAllReduce")));
}

TEST_CASE("nccl gate: a call is told before and behind, by what its arguments mean", "[artifact]") {
  void* nccl = open_library("libnccl.so.2");
  publish();
  int words[4];
  CHECK(symbol<AllReduce>(nccl, "ncclAllReduce")(&words[0], &words[1], 5, 7, 2, &words[2],
                                                 &words[3]) == 31);
  REQUIRE(told.size() == 2);
  CHECK(told[0].result == -1);
  CHECK(told[1].result == 31);
  for (const Told& one : told) {
    const convtrace_nccl_call& call = one.call;
    CHECK(call.bytes == sizeof call);
    CHECK(call.kind == CONVTRACE_NCCL_ALL_REDUCE);
    CHECK(call.send == &words[0]);
    CHECK(call.receive == &words[1]);
    CHECK(call.count == 5);
    CHECK(call.type == 7);
    CHECK(call.reduction == 2);
    CHECK(call.comm == &words[2]);
    CHECK(call.stream == &words[3]);
    REQUIRE(call.library != nullptr);
    CHECK_FALSE(one.has_user_rank);  // this one lacks it
  }
  CHECK(told.size() == 2);
  CHECK(symbol<int (*)(void*)>(nccl, "ncclCommDestroy")(&words[2]) == 33);
  CHECK(told.back().call.kind == CONVTRACE_NCCL_COMM_ENDS);
  CHECK(told.back().call.comm == &words[2]);
}

TEST_CASE("nccl gate: an older engine's shorter table is not read past its end", "[artifact]") {
  void* nccl = open_library("libnccl.so.2");
  static convtrace_hooks_v1 hooks{};
  hooks.bytes = offsetof(convtrace_hooks_v1, nccl_begins);
  hooks.nccl_ended = [](const convtrace_nccl_call*, int) { told.push_back({}); };
  auto* slot = symbol<std::atomic<const convtrace_hooks_v1*>*>(RTLD_DEFAULT, "convtrace_hooks_v1");
  REQUIRE(slot != nullptr);
  slot->store(&hooks);
  CHECK(symbol(nccl, "ncclGroupStart")() == 34);
  CHECK(told.empty());
}
