#include "interposer/core/memory/python_frames.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <string_view>
#include <unordered_map>

#include "format/base/mutex.h"
#include "interposer/core/memory/python_layout.h"

namespace convtrace::engine {
namespace {

constexpr uint64_t kTag = uint64_t{1} << 63;
constexpr size_t kMostPlaces = size_t{1} << 16;
constexpr size_t kMostLinks = 256;  // frames of a stack that are looked at
constexpr int kMilliseconds = 100;  // that are waited for
constexpr uint32_t kHidden =
    0;  // the observer's own, and what Python 3.12 puts between native and its own
constexpr std::string_view kShim = "<shim>";

/// Identity of a line. The code object's address alone is not enough: another code object may have had
/// it before.
struct Place {
  uint64_t code = 0, instruction = 0, file = 0, name = 0, lines = 0, line = 0;
  bool operator==(const Place&) const = default;
};

struct HashOfPlace {
  size_t operator()(const Place& one) const {
    uint64_t sum = 0;
    for (const uint64_t word : {one.code, one.instruction, one.file, one.name, one.lines, one.line})
      sum = (sum ^ word) * 0x9E3779B97F4A7C15 + (sum >> 29);
    return sum;
  }
};

/// Lives as long as the process.
struct Reader {
  PythonLayout layout;
  uint64_t (*state)() = nullptr;            // PyGILState_GetThisThreadState
  uint64_t interpreter = 0, behind_it = 0;  // its code
  std::string own_folder;                   // folder of the observer
  Mutex mutex;
  std::unordered_map<Place, uint32_t, HashOfPlace> places CONVTRACE_GUARDED_BY(mutex);
  std::deque<std::string> texts CONVTRACE_GUARDED_BY(mutex){"(convtrace)"};

  Place place_of(uint64_t frame, uint64_t code) const {
    const auto in_code = [&](size_t offset) { return word_at(code + offset); };
    return {code,
            word_at(frame + layout.instruction) - code - layout.first,
            in_code(layout.file),
            in_code(layout.name),
            in_code(layout.lines),
            in_code(layout.line & ~size_t{7})};
  }

  uint32_t number_of(const Place& place) CONVTRACE_REQUIRES(mutex) {
    if (const auto known = places.find(place); known != places.end()) return known->second;
    if (texts.size() == kMostPlaces) return kHidden;
    const std::string file = text_of_python(layout, place.file);
    uint32_t number = kHidden;
    if (!file.starts_with(own_folder) && file != kShim) {
      number = static_cast<uint32_t>(texts.size());
      texts.push_back(text_of_python(layout, place.name) + " (" + file + ':' +
                      std::to_string(line_of(layout, place.code, place.instruction)) + ')');
    }
    places.emplace(place, number);
    return number;
  }

  /// Writes the thread's frames to `out`, innermost first. @return how many. Frames without a function
  /// of Python are skipped: they mark the places where native code has called the interpreter.
  size_t walk(std::span<void*> out) CONVTRACE_REQUIRES(mutex) {
    size_t found = 0;
    uint64_t frame = innermost_frame(layout, state());
    for (size_t links = 0; frame != 0 && links < kMostLinks && found < out.size(); ++links) {
      const uint64_t code = word_at(frame + layout.code) & ~uint64_t{7};
      if (code != 0 && word_at(code + sizeof code) == layout.code_type) {
        const uint32_t number = number_of(place_of(frame, code));
        if (number != kHidden) out[found++] = reinterpret_cast<void*>(kTag | number);
      }
      frame = word_at(frame + layout.previous);
    }
    return found;
  }
};

std::atomic<Reader*> g_reader{nullptr};
std::atomic<bool> g_ended{false};
std::atomic<int> g_walking{0};

/// Sets the part of memory that holds the interpreter's code.
void find_interpreter(Reader& reader) {
  const auto each = [](dl_phdr_info* library, size_t /*size*/, void* data) {
    auto& of = *static_cast<Reader*>(data);
    const auto wanted = reinterpret_cast<uint64_t>(of.state);
    for (unsigned i = 0; i < library->dlpi_phnum; ++i) {
      const auto& part = library->dlpi_phdr[i];
      const uint64_t begin = library->dlpi_addr + part.p_vaddr;
      if (part.p_type != PT_LOAD || wanted < begin || wanted >= begin + part.p_memsz) continue;
      of.interpreter = begin;
      of.behind_it = begin + part.p_memsz;
      return 1;
    }
    return 0;
  };
  dl_iterate_phdr(each, &reader);
}

/// ".../convtrace_observer/base/engine.py" -> ".../convtrace_observer/"
std::string folder_of(std::string_view file) {
  constexpr std::string_view kPackage = "/convtrace_observer/";
  const size_t at = file.rfind(kPackage);
  return std::string(at == std::string_view::npos ? file : file.substr(0, at + kPackage.size()));
}

/// Counts those that walk, so that end_python_frames() sees them.
class Walking {
 public:
  Walking() { g_walking.fetch_add(1); }
  ~Walking() { g_walking.fetch_sub(1); }
  Walking(const Walking&) = delete;
  Walking& operator=(const Walking&) = delete;
};

}  // namespace

bool learn_python_frames(std::span<const KnownFrame> known) noexcept {
  if (g_reader.load() != nullptr) return true;
  void* const function = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  if (function == nullptr || known.empty()) return false;
  try {
    auto* const reader = new Reader;
    reader->state = reinterpret_cast<uint64_t (*)()>(function);
    const auto layout = learn_layout(reader->state(), known);
    if (!layout) {
      delete reader;
      return false;
    }
    reader->layout = *layout;
    reader->own_folder = folder_of(known.front().file_text);
    find_interpreter(*reader);
    g_reader.store(reader);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void end_python_frames() noexcept {
  g_ended.store(true);
  for (int i = 0; i < kMilliseconds && g_walking.load() != 0; ++i) usleep(1000);
}

size_t add_python_frames(std::span<void*> stack, size_t count) noexcept {
  Reader* const reader = g_reader.load(std::memory_order_acquire);
  if (reader == nullptr) return count;
  const Walking walking;
  if (g_ended.load() || reader->state() == 0 || !reader->mutex.try_lock()) return count;
  const Lock lock(reader->mutex, std::adopt_lock);
  const auto native = stack.first(count);
  const auto outer = std::ranges::find_if(native, [&](const void* frame) {
    const auto address = reinterpret_cast<uint64_t>(frame);
    return address >= reader->interpreter && address < reader->behind_it;
  });
  const auto inner = static_cast<size_t>(outer - native.begin());
  try {
    void* lines[kMaxPythonFrames];
    const size_t found =
        reader->walk(std::span(lines).first(std::min(kMaxPythonFrames, stack.size() - inner)));
    if (found == 0) return count;
    std::copy_n(lines, found, stack.begin() + static_cast<ptrdiff_t>(inner));
    return inner + found;
  } catch (const std::exception&) {
    return count;
  }
}

bool is_python_frame(const void* frame) noexcept {
  return (reinterpret_cast<uint64_t>(frame) & kTag) != 0;
}

std::string python_frame_text(const void* frame) {
  Reader* const reader = g_reader.load(std::memory_order_acquire);
  // Tries for a limited time: in a fork's child, a thread that no longer exists may hold the mutex.
  for (int i = 0; reader != nullptr && i < kMilliseconds; ++i) {
    if (!reader->mutex.try_lock()) {
      usleep(1000);
      continue;
    }
    const Lock lock(reader->mutex, std::adopt_lock);
    const uint64_t number = reinterpret_cast<uint64_t>(frame) & ~kTag;
    return number < reader->texts.size() ? reader->texts[number] : "?";
  }
  return "?";
}

}  // namespace convtrace::engine
