#include "interposer/core/runtime/thread_context.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

namespace convtrace::engine {
namespace {

thread_local constinit ThreadContext* t_context __attribute__((tls_model("initial-exec"))) =
    nullptr;
std::atomic<ThreadContext*> g_threads{nullptr};
pthread_key_t g_exit_key;
pthread_once_t g_exit_key_once = PTHREAD_ONCE_INIT;
bool g_exit_key_made = false;

uint32_t native_id() noexcept { return static_cast<uint32_t>(syscall(SYS_gettid)); }

void on_thread_exit(void* context) {
  // Destructors of other keys may still call convtrace: they get a new context, and this runs
  // again.
  t_context = nullptr;
  static_cast<ThreadContext*>(context)->owned.store(false, std::memory_order_release);
}

void make_exit_key() { g_exit_key_made = pthread_key_create(&g_exit_key, on_thread_exit) == 0; }

ThreadContext* reuse() noexcept {
  for (ThreadContext* context = first_thread(); context != nullptr; context = context->next) {
    bool free = false;
    if (!context->owned.load(std::memory_order_relaxed) &&
        context->owned.compare_exchange_strong(free, true, std::memory_order_acquire)) {
      context->scope = {};
      return context;
    }
  }
  return nullptr;
}

ThreadContext* enlist() noexcept {
  auto* context = new (std::nothrow) ThreadContext;
  if (context == nullptr) return nullptr;
  ThreadContext* head = g_threads.load(std::memory_order_relaxed);
  do {
    context->next = head;
  } while (!g_threads.compare_exchange_weak(head, context, std::memory_order_release,
                                            std::memory_order_relaxed));
  return context;
}

ThreadContext* adopt() noexcept {
  pthread_once(&g_exit_key_once, make_exit_key);
  ThreadContext* context = reuse();
  if (context == nullptr) context = enlist();
  if (context == nullptr) return nullptr;
  context->thread = native_id();
  // Without a key the context is not reused by another thread.
  if (g_exit_key_made) pthread_setspecific(g_exit_key, context);
  t_context = context;
  return context;
}

}  // namespace

ThreadContext* this_thread() noexcept { return t_context != nullptr ? t_context : adopt(); }

ThreadContext* first_thread() noexcept { return g_threads.load(std::memory_order_acquire); }

void reset_threads_after_fork() noexcept {
  for (ThreadContext* context = first_thread(); context != nullptr; context = context->next) {
    context->events.clear();
    context->reports.clear();
    if (context != t_context) context->owned.store(false, std::memory_order_relaxed);
  }
  if (t_context != nullptr) t_context->thread = native_id();
}

}  // namespace convtrace::engine
