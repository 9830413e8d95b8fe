#include "interposer/core/python/tensor_reader.h"

#include <algorithm>

#include "format/model/dtype.h"

namespace convtrace::python {
namespace {

using Outcome = TensorReader::Outcome;

Ref name(const char* text) { return Ref(api.PyUnicode_InternFromString(text)); }

Ref entry(PyObject* config, const char* key) {
  Ref found = Ref::to(api.PyDict_GetItemString(config, key));
  if (!found) api.PyErr_SetString(*api.PyExc_RuntimeError, key);
  return found;
}

/// Copies the numbers of a tuple that has one for each dimension.
bool copy_numbers(PyObject* tuple, uint32_t rank, int64_t* out) {
  for (uint32_t i = 0; i < rank; ++i) {
    PyObject* const item = api.PyTuple_GetItem(tuple, i);
    out[i] = item != nullptr ? api.PyLong_AsLongLong(item) : -1;
    if (out[i] == -1 && api.PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

}  // namespace

bool TensorReader::configure(PyObject* config) {
  const struct {
    Ref& object;
    const char* key;
  } entries[] = {{tensor_, "tensor"},         {parameter_, "parameter"},
                 {strided_, "strided"},       {is_wrapped_, "is_wrapped"},
                 {raw_stream_, "raw_stream"}, {data_address_, "data_address"},
                 {getattr_, "getattr"},       {storage_ids_, "storage_ids"}};
  for (const auto& [object, key] : entries) {
    if (!(object = entry(config, key))) return false;
  }
  const struct {
    Ref& object;
    const char* text;
  } names[] = {{layout_, "layout"},
               {is_nested_, "is_nested"},
               {is_cpu_, "is_cpu"},
               {is_cuda_, "is_cuda"},
               {get_device_, "get_device"},
               {shape_, "shape"},
               {stride_, "stride"},
               {dtype_, "dtype"},
               {is_neg_, "is_neg"},
               {is_conj_, "is_conj"},
               {version_, "_version"},
               {storage_offset_, "storage_offset"},
               {untyped_storage_, "untyped_storage"},
               {nbytes_, "nbytes"},
               {id_, "_convtrace_id"}};
  for (const auto& [object, text] : names) {
    if (!(object = name(text))) return false;
  }
  const Ref dtypes = entry(config, "dtypes");
  if (!dtypes) return false;
  Py_ssize_t position = 0;
  PyObject *dtype = nullptr, *code = nullptr;
  while (api.PyDict_Next(dtypes.get(), &position, &dtype, &code) != 0) {
    dtypes_.emplace_back(Ref::to(dtype), static_cast<uint8_t>(word(code)));
  }
  return true;
}

Outcome TensorReader::read(PyObject* tensor, TensorMessage& message) {
  const Ref layout = attribute(tensor, layout_.get());
  if (failed(layout)) return Outcome::kFailed;
  if (layout.get() != strided_.get()) return Outcome::kLeft;
  const Ref nested = attribute(tensor, is_nested_.get());
  const Ref wrapped = nested ? call(is_wrapped_.get(), {tensor}) : Ref();
  const Ref negative = wrapped ? method(tensor, is_neg_.get()) : Ref();
  if (failed(negative)) return Outcome::kFailed;
  if (is_true(nested.get()) || is_true(wrapped.get()) || is_true(negative.get())) {
    return Outcome::kLeft;
  }
  Outcome outcome = read_device(tensor, message.fixed);
  if (outcome == Outcome::kRead) outcome = read_layout(tensor, message);
  if (outcome == Outcome::kRead) outcome = read_memory(tensor, message);
  return outcome;
}

Outcome TensorReader::read_device(PyObject* tensor, convtrace_tensor& fixed) {
  using format::Device;
  fixed.device_index = 0;
  fixed.stream = 0;
  fixed.device_type = static_cast<uint8_t>(Device::Type::kCpu);
  const Ref on_cpu = attribute(tensor, is_cpu_.get());
  if (failed(on_cpu)) return Outcome::kFailed;
  if (is_true(on_cpu.get())) return Outcome::kRead;
  const Ref on_cuda = attribute(tensor, is_cuda_.get());
  if (failed(on_cuda)) return Outcome::kFailed;
  if (!is_true(on_cuda.get()) || is_none(raw_stream_.get())) return Outcome::kLeft;
  const Ref index = method(tensor, get_device_.get());
  const Ref stream = index ? call(raw_stream_.get(), {index.get()}) : Ref();
  if (failed(stream)) return Outcome::kFailed;
  fixed.device_type = static_cast<uint8_t>(Device::Type::kCuda);
  fixed.device_index = static_cast<uint8_t>(word(index));
  fixed.stream = word(stream);
  return Outcome::kRead;
}

uint8_t TensorReader::dtype_of(const PyObject* dtype) const {
  const auto found = std::find_if(dtypes_.begin(), dtypes_.end(),
                                  [&](const auto& known) { return known.first.get() == dtype; });
  return found != dtypes_.end() ? found->second : 0;
}

Outcome TensorReader::read_layout(PyObject* tensor, TensorMessage& message) {
  convtrace_tensor& fixed = message.fixed;
  const Ref dtype = attribute(tensor, dtype_.get());
  if (failed(dtype)) return Outcome::kFailed;
  fixed.dtype = dtype_of(dtype.get());
  const auto known = static_cast<format::DType>(fixed.dtype);
  if (known == format::DType::kUnknown) return Outcome::kLeft;
  if (known == format::DType::kC64 || known == format::DType::kC128) {
    const Ref conjugated = method(tensor, is_conj_.get());
    if (failed(conjugated)) return Outcome::kFailed;
    if (is_true(conjugated.get())) return Outcome::kLeft;
  }
  const Ref shape = attribute(tensor, shape_.get());
  const Ref strides = shape ? method(tensor, stride_.get()) : Ref();
  if (failed(strides)) return Outcome::kFailed;
  const Py_ssize_t rank = api.PyTuple_Size(shape.get());
  if (rank < 0 || rank > static_cast<Py_ssize_t>(format::kMaxDims)) return Outcome::kLeft;
  fixed.rank = static_cast<uint8_t>(rank);
  return copy_numbers(shape.get(), fixed.rank, message.dims) &&
                 copy_numbers(strides.get(), fixed.rank, message.dims + rank)
             ? Outcome::kRead
             : Outcome::kFailed;
}

Outcome TensorReader::read_memory(PyObject* tensor, TensorMessage& message) {
  convtrace_tensor& fixed = message.fixed;
  fixed.storage_base = word(call(data_address_.get(), {tensor}));
  if (failed(fixed.storage_base)) return Outcome::kFailed;
  const int64_t* const shape = message.dims;
  // No memory: a ZeroTensor, or storage that was taken away.
  if (fixed.storage_base == 0 && std::find(shape, shape + fixed.rank, 0) == shape + fixed.rank) {
    return Outcome::kLeft;
  }
  const uint64_t offset = word(method(tensor, storage_offset_.get()));
  if (failed(offset)) return Outcome::kFailed;
  fixed.data =
      fixed.storage_base + offset * format::element_bytes(static_cast<format::DType>(fixed.dtype));
  const Ref version = attribute(tensor, version_.get());
  if (failed(version)) {  // inference tensors have no counter
    if (api.PyErr_ExceptionMatches(*api.PyExc_RuntimeError) == 0) return Outcome::kFailed;
    api.PyErr_Clear();
  }
  fixed.version = version ? static_cast<uint32_t>(word(version)) : 0;
  const Ref storage = method(tensor, untyped_storage_.get());
  if (failed(storage) || !read_identity(storage.get(), fixed)) return Outcome::kFailed;
  fixed.storage_bytes = word(method(storage.get(), nbytes_.get()));
  return failed(fixed.storage_bytes) ? Outcome::kFailed : Outcome::kRead;
}

/// As values.storage_identity().
bool TensorReader::read_identity(PyObject* storage, convtrace_tensor& fixed) {
  Ref identity = call(getattr_.get(), {storage, id_.get(), api._Py_NoneStruct});
  if (!identity) return false;
  if (is_none(identity.get())) {
    identity = Ref(api.PyIter_Next(storage_ids_.get()));
    if (!identity || api.PyObject_SetAttr(storage, id_.get(), identity.get()) != 0) return false;
  }
  fixed.storage = word(identity);
  return true;
}

}  // namespace convtrace::python
