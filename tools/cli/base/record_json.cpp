#include "tools/cli/base/record_json.h"

#include <bit>
#include <cstring>

#include "tools/common/element.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

using format::Definitions;

Json step_json(uint32_t step) { return step == format::kNoStep ? Json() : Json(step); }

/// null for none; an interned "" is a text.
Json text_json(const Definitions& definitions, format::StringId id) {
  return id ? Json(definitions.text(id)) : Json();
}

Json kernel_json(const Definitions& definitions, format::KernelId id) {
  return id ? text_json(definitions, definitions.kernel(id).name) : Json();
}

Json value_json(const format::ValueId& value) {
  return {{"storage", value.storage},
          {"offset", value.offset},
          {"generation", value.generation},
          {"version", value.version}};
}

/// Integers stay integers: a double would round those beyond 2^53.
Json elements_json(format::DType dtype, std::span<const std::byte> raw) {
  Json list = Json::array();
  const size_t size = component_bytes(dtype);
  for (size_t at = 0; at + size <= raw.size(); at += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, raw.data() + at, std::min(size, sizeof bits));
    const double value = decode_component(dtype, raw.data() + at);
    switch (format::number_class(dtype)) {
      case format::NumberClass::kFloat:
        list.push_back(json_number(value));
        break;
      case format::NumberClass::kSigned:
        list.push_back(size == sizeof bits ? std::bit_cast<int64_t>(bits)
                                           : static_cast<int64_t>(value));
        break;
      case format::NumberClass::kUnsigned:
      case format::NumberClass::kBytes:
        list.push_back(bits);
        break;
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

/// Adds the keys of each kind of record to an object that has the common ones.
class Filler {
 public:
  Filler(Json& json, const Definitions& definitions) : json_(json), definitions_(definitions) {}

  void operator()(const format::Launch& e) {
    place(e.place);
    json_["kernel"] = kernel_json(definitions_, e.kernel);
    json_["family"] = text_json(definitions_, definitions_.kernel(e.kernel).family);
    json_["grid"] = e.grid;
    json_["block"] = e.block;
    json_["shared_bytes"] = e.shared_bytes;
    json_["stream"] = e.stream;
    json_["device"] = device_text({format::Device::Type::kCuda, e.device});
    json_["sampled"] = e.sampled == format::NotSampled::kSampled;
    if (e.sampled != format::NotSampled::kSampled) json_["why"] = to_string(e.sampled);
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
    place(e.place);
    json_["slot"] = text_json(definitions_, e.slot);
    json_["op"] = text_json(definitions_, e.op);
    json_["kernel"] = kernel_json(definitions_, e.kernel);
    json_["device"] = device_text(e.device);
    json_["dtype"] = to_string(e.dtype);
    json_["shape"] = e.has_shape ? Json(e.shape) : Json();
    json_["extent"] = to_string(e.extent);
    json_["capture"] = to_string(e.capture);
    json_["value"] = value_json(e.value);
    json_["address"] = e.address;
    json_["bytes"] = e.bytes;
    json_["looks"] = e.looks == 0 ? Json() : Json(e.looks);
    json_["changes"] = e.looks == 0 ? Json() : Json(e.changes);
    json_["padding"] = padding_json(e);
    if (e.poisoned != 0) json_["poisoned"] = e.poisoned;
    json_.update(stats_json(e.stats, e.dtype, e.capture));
    if (e.capture == format::Capture::kHash) return;
    json_["samples"] = elements_json(e.dtype, e.samples);
    json_["leading"] = elements_json(e.dtype, e.leading);
    Json& ranges = json_["range_hashes"] = Json::array();
    for (const uint64_t hash : e.range_hashes) ranges.push_back(hex_text(hash));
    json_["variant"] = e.variant;
  }

  void operator()(const format::Alloc& e) { memory(e); }
  void operator()(const format::Free& e) { memory(e); }

  void operator()(const format::Copy& e) {
    constexpr const char* kKinds[] = {"copy", "set", "discard"};
    json_["kind"] = kKinds[static_cast<size_t>(e.kind)];
    json_["destination"] = e.destination;
    json_["source"] = e.source;
    json_["bytes"] = e.bytes;
    json_["stream"] = e.stream;
  }

  void operator()(const format::Scope& e) {
    place(e.place);
    json_["enter"] = e.enter;
  }

  void operator()(const format::Step& e) { json_["step"] = step_json(e.index); }

  void operator()(const format::Finding& e) {
    json_["kind"] = to_string(e.kind);
    json_["level"] = to_string(e.level);
    place(e.place);
    json_["op"] = text_json(definitions_, e.op);
    json_["kernel"] = kernel_json(definitions_, e.kernel);
    json_["slot"] = text_json(definitions_, e.slot);
    json_["other"] = text_json(definitions_, e.other);
    json_["address"] = e.address;
    json_["bytes"] = e.bytes;
    json_["value"] = value_json(e.value);
    json_["message"] = e.message;
    json_["stacks"] = {{"alloc", stack_texts(definitions_, e.alloc_stack)},
                       {"launch", stack_texts(definitions_, e.launch_stack)},
                       {"free", stack_texts(definitions_, e.free_stack)}};
    json_["suppressed"] = e.suppressed;
  }

  void operator()(const format::Diagnostic& e) {
    json_["level"] = to_string(e.level);
    json_["site"] = e.site;
    json_["message"] = e.message;
  }

  void operator()(const format::Loss& e) {
    json_["reason"] = to_string(e.reason);
    json_["count"] = e.count;
  }

  void operator()(const format::Cost& e) {
    json_["host_ns"] = e.host_ns;
    json_["device_ns"] = e.device_ns;
    json_["bytes"] = e.bytes;
  }

  void operator()(const format::Sync& e) {
    json_["kind"] = to_string(e.kind);
    json_["device"] = device_text({format::Device::Type::kCuda, e.device});
    json_["stream"] = e.stream;
    json_["event"] = e.event;
    json_["flags"] = e.flags;
  }

  void operator()(const format::Op& e) {
    using Moment = format::OpMoment;
    json_["moment"] = to_string(e.moment);
    place(e.place);
    json_["op"] = text_json(definitions_, e.op);
    const bool tensor = e.moment == Moment::kInput || e.moment == Moment::kOutput;
    if (tensor || e.moment == Moment::kStorageDeath) json_["value"] = value_json(e.value);
    if (tensor) {
      json_["slot"] = text_json(definitions_, e.slot);
      json_["device"] = device_text(e.device);
      json_["address"] = e.address;
      json_["bytes"] = e.bytes;
      json_["storage_bytes"] = e.storage_bytes;
      json_["written"] = e.written;
      json_["frees_reported"] = e.frees_reported;
      if (e.moment == Moment::kOutput) json_["borrows"] = e.borrows;
    } else if (e.moment == Moment::kEnd) {
      json_["declares_alias"] = e.declares_alias;
      json_["has_schema"] = e.has_schema;
    } else if (e.moment == Moment::kStack && e.slot) {
      json_["slot"] = text_json(definitions_, e.slot);
    }
    json_["stack"] = stack_texts(definitions_, e.stack);
  }

  void operator()(const format::Fact& e) {
    json_["scope"] = text_json(definitions_, e.scope);
    json_["name"] = text_json(definitions_, e.name);
    json_["value"] = e.value;
  }

 private:
  void place(const format::Place& place) {
    json_["phase"] = to_string(place.phase);
    json_["scope"] = text_json(definitions_, place.scope);
    json_["call"] = place.call;
  }

  void memory(const auto& e) {
    json_["address"] = e.address;
    json_["bytes"] = e.bytes;
    json_["generation"] = e.generation;
    json_["source"] = to_string(e.source);
    json_["stream"] = e.stream;
    json_["device"] = device_text(e.device);
    json_["stack"] = stack_texts(definitions_, e.stack);
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
  Json list = Json::array();
  for (const reader::Problem& problem : problems) {
    list.push_back({{"offset", problem.offset}, {"bytes", problem.bytes}, {"text", problem.text}});
  }
  return list;
}

}  // namespace convtrace::tools
