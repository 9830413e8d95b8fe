// The exported functions (exports.map): each enters through guarded.h and delegates.

#include <string.h>

#include <algorithm>
#include <cstddef>

#include "interposer/abi/observer_abi.h"
#include "interposer/core/engine.h"
#include "interposer/core/lifecycle.h"
#include "interposer/core/memory/python_frames.h"
#include "interposer/core/python/part.h"
#include "interposer/core/runtime/guarded.h"
#include "interposer/core/runtime/thread_context.h"

using convtrace::engine::Engine;
using convtrace::engine::guarded;
using convtrace::engine::guarded_if;
using convtrace::engine::running_engine;
using convtrace::engine::State;

#define CONVTRACE_EXPORT __attribute__((visibility("default")))

namespace {

constexpr auto kAlways = [](const State&) { return true; };

}  // namespace

extern "C" {

/// Called by the CUDA driver inside cuInit (CUDA_INJECTION64_PATH), where no CUDA call is allowed.
/// @return 1, the only value whose effect is documented.
CONVTRACE_EXPORT int InitializeInjection(void);
int InitializeInjection(void) {
  if (Engine* engine = convtrace::engine::start_engine()) {
    guarded("injection", false, [engine] { return engine->interceptor() != nullptr; });
  }
  return 1;
}

CONVTRACE_EXPORT uint32_t convtrace_start(void) {
  return convtrace::engine::start_engine() != nullptr ? CONVTRACE_OBSERVER_ABI : 0;
}

CONVTRACE_EXPORT uint32_t convtrace_intern(const char* text, uint32_t bytes) {
  return guarded("intern", 0U, [=] {
    Engine* const engine = running_engine();
    return engine != nullptr ? engine->definitions().intern({text, bytes}).value : 0;
  });
}

CONVTRACE_EXPORT uint32_t convtrace_submit(const void* messages, uint32_t bytes) {
  Engine* const engine = running_engine();
  if (engine == nullptr) return CONVTRACE_SUBMIT_OFF;
  return guarded("submit", engine->flags(), [=] {
    return engine->submit({static_cast<const std::byte*>(messages), bytes});
  });
}

CONVTRACE_EXPORT struct convtrace_thread_scope* convtrace_scope_slot(void) {
  // If there is no memory for a slot, all such threads share this one, which is never read.
  static constinit convtrace_thread_scope nobody{};
  return guarded_if("scope slot", &nobody, kAlways, [] {
    convtrace::engine::ThreadContext* const context = convtrace::engine::this_thread();
    return context != nullptr ? &context->scope : &nobody;
  });
}

CONVTRACE_EXPORT uint32_t convtrace_setting(const char* name, char* buffer, uint32_t capacity) {
  return guarded_if("setting", 0U, kAlways, [=]() -> uint32_t {
    const Engine* const engine = running_engine();
    const auto* const spec = convtrace::settings::find_setting(name);
    const std::string value =
        engine != nullptr && spec != nullptr ? spec->print(engine->settings()) : std::string();
    if (capacity != 0) {
      const size_t copied = std::min<size_t>(value.size(), capacity - 1);
      memcpy(buffer, value.data(), copied);
      buffer[copied] = '\0';
    }
    return static_cast<uint32_t>(value.size());
  });
}

CONVTRACE_EXPORT void* convtrace_python(void* config, uint32_t (*submit)(const void*, uint32_t),
                                        struct convtrace_thread_scope* (*scope_slot)(void)) {
  return convtrace::python::make_part(
      static_cast<convtrace::python::PyObject*>(config),
      {submit != nullptr ? submit : convtrace_submit,
       scope_slot != nullptr ? scope_slot : convtrace_scope_slot,
       convtrace::engine::learn_python_frames, convtrace::engine::end_python_frames});
}

CONVTRACE_EXPORT void convtrace_finish(void) { convtrace::engine::end_tracing(); }

}  // extern "C"
