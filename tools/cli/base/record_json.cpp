#include "tools/cli/base/record_json.h"

#include <bit>
#include <cstring>

#include "tools/common/element.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::Definitions;

/// Integers stay integers: a double would round those beyond 2^53.
Json elements_json(format::DType dtype, std::span<const std::byte> raw) {
  Json list = Json::array();
  const size_t size = component_bytes(dtype);
  for (size_t at = 0; at + size <= raw.size(); at += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, raw.data() + at, std::min(size, sizeof bits));
    const double value = decode_component(dtype, raw.data() + at);
    switch (format::number_class(dtype)) {
      case format::NumberClass::kFloat: list.push_back(json_number(value)); break;
      case format::NumberClass::kSigned:
        list.push_back(size == sizeof bits ? std::bit_cast<int64_t>(bits)
                                           : static_cast<int64_t>(value));
        break;
      case format::NumberClass::kUnsigned:
      case format::NumberClass::kBytes: list.push_back(bits); break;
    }
  }
  return list;
}

Json padding_json(const format::TensorStats& e) {
  if (e.padding == format::Padding::kNone) return Json();
  return {{"of", to_string(e.padding)},
          {"index", e.pad_index},
          {"count", e.pad_count == format::kNotCounted ? Json() : Json(e.pad_count)},
          {"rows", e.pad_rows}};
}

/// Adds the keys of a record's kind, from its list of fields in events.h, to an object with the
/// common keys.
class Filler {
 public:
  Filler(Json& json, const Definitions& definitions) : json_(json), definitions_(definitions) {}

  template <typename Kind>
  void operator()(const Kind& e) {
    Kind::fields(e, [this](auto, const char* name, const auto& value, bool meant = true) {
      if (meant) this->add(name, value);  // said, or clang 14 holds `this` for unused
    });
  }

  void operator()(const format::Launch& e) {
    add("place", e.place);
    add("kernel", e.kernel);
    add("family", definitions_.kernel(e.kernel).family);
    add("grid", e.grid);
    add("block", e.block);
    add("shared_bytes", e.shared_bytes);
    add("stream", e.stream);
    add("device", e.device);
    add("sampled", e.sampled == format::SampleOutcome::kSampled);
    if (e.sampled != format::SampleOutcome::kSampled) add("why", e.sampled);
    Json& operands = json_["operands"] = Json::array();
    for (const format::Operand& operand : e.operands) {
      operands.push_back({{"param", operand.param},
                          {"word", operand.word},
                          {"offset", operand.offset},
                          {"address", operand.address},
                          {"generation", operand.generation},
                          {"confidence", to_string(operand.confidence)}});
    }
  }

  void operator()(const format::TensorStats& e) {
    add("place", e.place);
    add("slot", e.slot);
    add("op", e.op);
    add("kernel", e.kernel);
    add("device", e.device);
    add("dtype", e.dtype);
    add("shape", e.has_shape ? Json(e.shape) : Json());
    add("extent", e.extent);
    add("capture", e.capture);
    add("value", e.value);
    add("address", e.address);
    add("bytes", e.bytes);
    add("looks", e.looks == 0 ? Json() : Json(e.looks));
    add("changes", e.looks == 0 ? Json() : Json(e.changes));
    add("padding", padding_json(e));
    if (e.poisoned != 0) add("poisoned", e.poisoned);
    if (e.collective != 0) add("collective", e.collective);
    if (e.layout != 0) add("layout", e.layout);
    json_.update(stats_json(e.stats, e.dtype, e.capture));
    if (e.capture == format::Capture::kHash) return;
    add("samples", elements_json(e.dtype, e.samples));
    add("leading", elements_json(e.dtype, e.leading));
    json_["range_hashes"] = json_list(e.range_hashes, hex_text);
    add("variant", e.variant);
  }

  void operator()(const format::Collective& e) {
    operator()<format::Collective>(e);
    if (e.peer == format::kNoPeer) json_["peer"] = Json();
    json_["tag"] = e.tag == 0 ? Json() : Json(e.tag - 1);
  }

  void operator()(const format::Step& e) { add("step", step_json(e.index)); }

 private:
  /// A number, a flag, a text or an enumerator.
  void add(const char* name, const auto& value) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>) {
      json_[name] = to_string(value);
    } else {
      json_[name] = value;
    }
  }
  /// All fields of one byte are ordinals of CUDA devices.
  void add(const char* name, uint8_t ordinal) {
    add(name, format::Device{format::Device::Type::kCuda, ordinal});
  }
  void add(const char* name, const format::Device& device) { json_[name] = device_text(device); }
  /// null for none; an interned "" is a text.
  void add(const char* name, format::StringId id) {
    json_[name] = id ? Json(definitions_.text(id)) : Json();
  }
  void add(const char* name, format::KernelId id) {
    add(name, id ? definitions_.kernel(id).name : format::StringId());
  }
  /// `alloc_stack` is `alloc` in `stacks`.
  void add(const char* name, format::StackId id) {
    const std::string whole = name, kind = whole.substr(0, whole.find("_stack"));
    (kind == whole ? json_[whole] : json_["stacks"][kind]) = stack_texts(definitions_, id);
  }
  void add(const char* name, const format::ValueId& value) {
    json_[name] = {{"storage", value.storage},
                   {"offset", value.offset},
                   {"generation", value.generation},
                   {"version", value.version}};
  }
  void add(const char* /*name*/, const format::Place& place) {
    add("phase", place.phase);
    add("scope", place.scope);
    add("call", place.call);
  }

  Json& json_;
  const Definitions& definitions_;
};

}  // namespace

Json event_json(const format::Event& event, const Definitions& definitions, uint32_t rank) {
  const format::EventHeader& header = format::header_of(event);
  Json json = {{"record", format::event_name(event.index())},
               {"seq", header.seq},
               {"t_ns", header.t_ns},
               {"rank", rank},
               {"step", step_json(header.step)},
               {"thread", header.thread}};
  std::visit(Filler(json, definitions), event);
  return json;
}

Json meta_json(const format::TraceMeta& meta) {
  Json facts = Json::object();
  for (const auto& [name, value] : meta.facts) facts[name] = value;
  return {{"uuid", uuid_text(meta.uuid)},
          {"start_realtime_ns", meta.start_realtime_ns},
          {"start_monotonic_ns", meta.start_monotonic_ns},
          {"hash_version", format::hashes_anew(meta) ? 2 : 1},
          {"tool_version", meta.tool_version},
          {"host", meta.host},
          {"pid", meta.pid},
          {"rank", meta.rank},
          {"world_size", meta.world_size},
          {"command_line", meta.command_line},
          {"facts", std::move(facts)}};
}

Json meta_record_json(const format::TraceMeta& meta) {
  Json json = {{"record", "meta"},
               {"seq", 0},
               {"t_ns", meta.start_monotonic_ns},
               {"rank", meta.rank},
               {"step", 0}};
  json.update(meta_json(meta));
  return json;
}

Json problems_json(const std::vector<reader::Problem>& problems) {
  return json_list(problems, [](const reader::Problem& problem) {
    return Json{{"offset", problem.offset}, {"bytes", problem.bytes}, {"text", problem.text}};
  });
}

}  // namespace convtrace::tools
