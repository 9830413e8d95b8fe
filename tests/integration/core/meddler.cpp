// A program that treats descriptors badly between its steps: it closes numbers that it does not own,
// puts its own files onto others, forks, executes itself, changes its root, rewrites a file of settings
// and sends itself the signal of a flight recorder. Run plain and under the preload library; the random
// numbers, and so its files, are the same both times.
//
// usage: meddler SEED [root] [slow]     in the folder of its files. "root": it may call chroot. "slow":
//        it takes longer than the engine takes to see that the file of settings has changed.

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/support/observer_messages.h"

using namespace convtrace;
using namespace convtrace::test;

namespace {

/// The engine, or nothing in a plain run.
struct Engine {
  Engine() {
    const char* const path = getenv("CONVTRACE_CORE");
    void* const library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) return;
    start = reinterpret_cast<decltype(start)>(dlsym(library, "convtrace_start"));
    intern_text = reinterpret_cast<decltype(intern_text)>(dlsym(library, "convtrace_intern"));
    submit = reinterpret_cast<decltype(submit)>(dlsym(library, "convtrace_submit"));
    (void)start();
  }
  [[nodiscard]] uint32_t intern(const std::string& text) const {
    return intern_text(text.data(), static_cast<uint32_t>(text.size()));
  }

  /// A fact that changes is written within 10 ms.
  void step(uint32_t index) const {
    if (submit == nullptr) return;
    const uint32_t scope = intern("mlp");
    MessageBatch batch;
    batch.step(index).scope(scope, 0).scope(scope, 0, false);
    batch.fact(intern("meddler.step"), intern(std::to_string(index)));
    submit(batch.bytes().data(), static_cast<uint32_t>(batch.bytes().size()));
  }

  /// As the observer in a forked child.
  void step_in_child() const {
    if (start != nullptr) (void)start();
    step(0);
  }

  uint32_t (*start)() = nullptr;
  uint32_t (*intern_text)(const char*, uint32_t) = nullptr;
  uint32_t (*submit)(const void*, uint32_t) = nullptr;
};

class Meddler {
 public:
  Meddler(const Engine& engine, uint64_t seed, bool root, bool slow)
      : engine_(engine), state_(seed * 0x9E3779B97F4A7C15 + 1), root_(root), slow_(slow) {}

  int run() {
    for (uint32_t i = 0; i < 12; ++i) {
      engine_.step(i);
      nap();
      if (i == 2) write_settings();
      const uint64_t actions = below(4);
      for (uint64_t k = 0; k < actions; ++k) act();
    }
    for (const auto& [fd, name] : files_) write_some(fd);
    return 0;
  }

 private:
  uint64_t below(uint64_t limit) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_ % limit;
  }

  /// The writer comes by; it looks at the file of settings twice a second, and reads it when two looks agree.
  void nap() const {
    const timespec pause{0, slow_ ? 150'000'000 : 13'000'000};
    nanosleep(&pause, nullptr);
  }

  void act() {
    switch (below(14)) {
      case 0:
      case 1:
      case 2: return open_file();
      case 3:
        if (int* const fd = any_file()) close_file(*fd);
        return;
      case 4: return close_foreign(3 + static_cast<int>(below(253)), 1);
      case 5: return close_foreign(3, 1024);
      case 6: return close_foreign(200, static_cast<int>(below(56)));
      case 7: return take_numbers(below(2) == 0 ? ".ctrace" : ".log");
      case 8: return take_numbers(nullptr);
      case 9: return fork_child();
      case 10:
        if (int* const fd = any_file()) write_some(*fd);
        return;
      case 11: return write_settings();
      case 12:
        if (raise(SIGUSR2) != 0) _exit(95);
        return;
      default:
        if (root_ && below(4) == 0) change_root();
    }
  }

  void open_file() {
    const std::string name = "file-" + std::to_string(made_++);
    const int fd = openat(AT_FDCWD, name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) _exit(90);
    files_[fd] = name;
    write_some(fd);
  }

  int* any_file() {
    if (files_.empty()) return nullptr;
    auto found = files_.begin();
    std::advance(found, static_cast<long>(below(files_.size())));
    chosen_ = found->first;
    return &chosen_;
  }

  void close_file(int fd) {
    files_.erase(fd);
    close(fd);
  }

  void write_some(int fd) {
    char text[64];
    const int bytes =
        snprintf(text, sizeof text, "%llu\n", static_cast<unsigned long long>(below(1u << 30)));
    if (write(fd, text, static_cast<size_t>(bytes)) != bytes) _exit(91);
  }

  void write_settings() {
    const int fd = open("settings.toml", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char text[64];
    const int bytes =
        snprintf(text, sizeof text, "mode = \"%s\"  # %llu\n", below(2) == 0 ? "hash" : "stats",
                 static_cast<unsigned long long>(below(1u << 30)));
    if (fd < 0 || write(fd, text, static_cast<size_t>(bytes)) != bytes) _exit(96);
    close(fd);
  }

  /// os.closerange(): without regard to whose the numbers are. Half of the time it spares its own.
  void close_foreign(int first, int count) {
    const bool own_too = below(2) == 0;
    for (int fd = first; fd < first + count; ++fd) {
      if (files_.count(fd) != 0 && !own_too) continue;
      close_file(fd);
    }
  }

  /// Puts a file of its own onto each number under which the process has a file of that kind; null: onto some
  /// numbers of which it knows nothing.
  void take_numbers(const char* ending) {
    open_file();
    const int own = files_.rbegin()->first;
    std::vector<int> numbers;
    if (ending == nullptr) {
      for (int i = 0; i < 4; ++i) numbers.push_back(230 + static_cast<int>(below(26)));
    } else if (DIR* const folder = opendir("/proc/self/fd")) {
      char target[4096];
      while (const dirent* entry = readdir(folder)) {
        const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length > 0 && std::string(target, static_cast<size_t>(length)).ends_with(ending))
          numbers.push_back(atoi(entry->d_name));
      }
      closedir(folder);
    }
    for (const int number : numbers) {
      if (number == own || dup2(own, number) != number) continue;
      if (ending == nullptr) files_[number] = files_[own];
    }
  }

  /// The child steps, closes and writes its own file, or becomes another program.
  void fork_child() {
    const uint64_t what = below(4);
    const std::string name = "child-" + std::to_string(made_++);
    const pid_t child = fork();
    if (child == 0) {
      engine_.step_in_child();
      if (what == 0 && !rooted_) {
        execl("/proc/self/exe", "meddler", "exec", name.c_str(), nullptr);
        _exit(92);
      }
      if (what == 1) close_foreign(3, 1024);
      const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      write_some(fd);
      if (what == 2) exit(0);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) _exit(93);
  }

  /// The folder of its files stays the working folder.
  void change_root() {
    root_ = false;
    if (mkdir("root", 0700) != 0) _exit(94);
    rooted_ = chroot("root") == 0;  // some sandboxes refuse it
  }

  const Engine& engine_;
  uint64_t state_;
  bool root_;            ///< it may change its root
  bool rooted_ = false;  ///< and has done so
  const bool slow_;
  int made_ = 0;
  int chosen_ = -1;
  std::map<int, std::string> files_;  ///< by number; two numbers may be one file
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 98;
  signal(SIGUSR2, [](int) {});  // before the engine, which passes the signal on
  const Engine engine;
  if (strcmp(argv[1], "exec") == 0) {
    for (uint32_t i = 0; i < 3; ++i) engine.step(i);
    const int fd = open(argv[2], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return write(fd, "executed\n", 9) == 9 ? 0 : 97;
  }
  const auto asked = [&](const char* word) {
    for (int i = 2; i < argc; ++i) {
      if (strcmp(argv[i], word) == 0) return true;
    }
    return false;
  };
  return Meddler(engine, strtoull(argv[1], nullptr, 10), asked("root"), asked("slow")).run();
}
