#include "interposer/core/memory/stack_texts.h"

#include <cinttypes>
#include <cstdio>
#include <vector>

#include "interposer/core/memory/unwinder.h"

namespace convtrace::engine {
namespace {

std::string with_number(const std::string& before, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "0x%" PRIx64, number);
  return before + text;
}

}  // namespace

format::StackId StackTexts::intern(std::span<void* const> return_addresses) {
  if (return_addresses.empty()) return {};
  std::vector<format::StringId> frames;
  const Lock lock(mutex_);
  for (void* const address : without_own_frames(return_addresses)) {
    format::StringId& text = known_[address];
    if (!text) text = definitions_.intern(text_of(address));
    frames.push_back(text);
  }
  return definitions_.intern_stack(frames);
}

std::string StackTexts::text_of(void* return_address) {
  if (is_python_frame(return_address)) return python_frame_text(return_address);
  const Frame frame = find_frame(return_address);
  if (frame.library == nullptr) return with_number("", reinterpret_cast<uint64_t>(return_address));
  const std::string place = with_number(name_of(*frame.library) + '+', frame.offset);
  return frame.function.empty() ? place : frame.function + " (" + place + ")";
}

const std::string& StackTexts::name_of(const link_map& library) {
  std::string& name = names_[&library];
  if (!name.empty()) return name;
  const std::string path = path_of(library);
  const std::string loaded = path.empty() ? library.l_name : path;
  name = loaded.substr(loaded.rfind('/') + 1);
  if (!owners_.emplace(name, &library).second) name = loaded;
  if (path.empty()) return name;
  const std::string build_id = build_id_of(library);
  facts_.set("library." + name, (build_id.empty() ? "-" : build_id) + ' ' + path);
  return name;
}

}  // namespace convtrace::engine
