#include "interposer/core/python/tensor_reader.h"

#include <algorithm>

#include "format/model/dtype.h"

namespace convtrace::python {
namespace {

using format::DType;
using Outcome = TensorReader::Outcome;

Ref name(const char* text) { return Ref(api.PyUnicode_InternFromString(text)); }

Ref entry(PyObject* config, const char* key) {
  Ref found = Ref::to(api.PyDict_GetItemString(config, key));
  if (!found) api.PyErr_SetString(*api.PyExc_RuntimeError, key);
  return found;
}

/// DLDataTypeCode and bits of dlpack.h, for types of one lane. Integers of 8 bits are not among them:
/// torch describes its types of one to seven bits alike.
struct DlType {
  uint8_t code, bits;
  DType dtype;
};
constexpr DlType kDlTypes[] = {
    {2, 32, DType::kF32},    {4, 16, DType::kBF16}, {2, 16, DType::kF16},
    {2, 64, DType::kF64},    {0, 64, DType::kI64},  {0, 32, DType::kI32},
    {0, 16, DType::kI16},    {1, 64, DType::kU64},  {1, 32, DType::kU32},
    {1, 16, DType::kU16},    {6, 8, DType::kBool},  {10, 8, DType::kF8E4M3FN},
    {12, 8, DType::kF8E5M2}, {5, 64, DType::kC64},  {5, 128, DType::kC128}};
constexpr int32_t kDlCpu = 1, kDlCuda = 2;

DType dtype_of(const DlTensor& tensor) {
  if (tensor.lanes != 1) return DType::kUnknown;
  const auto* const found = std::find_if(
      std::begin(kDlTypes), std::end(kDlTypes),
      [&](const DlType& one) { return one.code == tensor.type_code && one.bits == tensor.bits; });
  return found != std::end(kDlTypes) ? found->dtype : DType::kUnknown;
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
  } entries[] = {{tensor_, "tensor"},
                 {parameter_, "parameter"},
                 {strided_, "strided"},
                 {is_wrapped_, "is_wrapped"},
                 {is_cow_, "is_cow"},
                 {raw_stream_, "raw_stream"},
                 {data_address_, "data_address"}};
  for (const auto& [object, key] : entries) {
    if (!(object = entry(config, key))) return false;
  }
  const struct {
    Ref& object;
    const char* text;
  } names[] = {{layout_, "layout"},   {is_nested_, "is_nested"},   {is_cpu_, "is_cpu"},
               {is_cuda_, "is_cuda"}, {get_device_, "get_device"}, {shape_, "shape"},
               {stride_, "stride"},   {dtype_, "dtype"},           {version_, "_version"}};
  for (const auto& [object, text] : names) {
    if (!(object = name(text))) return false;
  }
  const struct {
    CMethod& method;
    const char* text;
  } methods[] = {{is_neg_, "is_neg"},
                 {is_conj_, "is_conj"},
                 {storage_offset_, "storage_offset"},
                 {untyped_storage_, "untyped_storage"},
                 {nbytes_, "nbytes"},
                 {resizable_, "resizable"}};
  for (const auto& [method, text] : methods) {
    if (!(method = name(text))) return false;
  }
  Ref numbers = entry(config, "storage_ids");
  if (!numbers) return false;
  numbers_.count_with(std::move(numbers));
  const Ref dtypes = entry(config, "dtypes");
  if (!dtypes) return false;
  Py_ssize_t position = 0;
  PyObject *dtype = nullptr, *code = nullptr;
  while (api.PyDict_Next(dtypes.get(), &position, &dtype, &code) != 0)
    dtypes_.emplace_back(Ref::to(dtype), static_cast<uint8_t>(word(code)));
  return find_exchange(config);
}

/// @return false with Python's error set; true also where torch has none that is known here.
bool TensorReader::find_exchange(PyObject* config) {
  const Ref capsule = entry(config, "exchange");
  if (!capsule || is_none(capsule.get()) || is_none(is_cow_.get()))
    return static_cast<bool>(capsule);
  const void* const found = api.PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api");
  const auto* const exchange = static_cast<const DlExchange*>(found);
  if (exchange == nullptr) {
    api.PyErr_Clear();  // no such capsule: attributes have the same facts
  } else if (exchange->major == 1 && exchange->describe != nullptr) {
    exchange_ = exchange;
  }
  return true;
}

Outcome TensorReader::read(PyObject* tensor, TensorMessage& message) {
  const Outcome outcome =
      exchange_ != nullptr ? read_exchange(tensor, message) : read_attributes(tensor, message);
  const Outcome all = outcome == Outcome::kRead ? read_memory(tensor, message) : outcome;
  if (all != Outcome::kFailed || api.PyErr_ExceptionMatches(*api.PyExc_Exception) == 0) return all;
  api.PyErr_Clear();  // values.py meets it, too
  return Outcome::kLeft;
}

bool TensorReader::is_torchs(PyObject* tensor, const TensorMessage& message) {
  if (message.fixed.device_type != 0) return false;
  const Ref storage = untyped_storage_(tensor);
  const Ref is = resizable_(storage.get());
  if (!is) api.PyErr_Clear();
  return is_true(is.get());
}

/// Through DLPack, which reads the address of the elements: it must not be asked for a tensor that is
/// copied then.
Outcome TensorReader::read_exchange(PyObject* tensor, TensorMessage& message) {
  convtrace_tensor& fixed = message.fixed;
  DlTensor found{};
  const Ref is_cow = call(is_cow_.get(), {tensor});
  if (failed(is_cow) || (!is_true(is_cow.get()) && exchange_->describe(tensor, &found) != 0)) {
    if (api.PyErr_ExceptionMatches(*api.PyExc_Exception) == 0) return Outcome::kFailed;
    api.PyErr_Clear();
    // A tensor without memory: sparse, nested, functorch's. Further ones shall raise no exception,
    // which takes torch many microseconds.
    exchange_ = nullptr;
    return read_attributes(tensor, message);
  }
  if (is_true(is_cow.get())) return Outcome::kLeft;
  DType dtype = python::dtype_of(found);
  if (dtype == DType::kUnknown && found.bits == 8 && found.type_code <= 1) {
    const Ref own = attribute(tensor, dtype_.get());
    if (failed(own)) return Outcome::kFailed;
    dtype = static_cast<DType>(dtype_of(own.get()));
  }
  if (dtype == DType::kUnknown || found.rank > static_cast<int32_t>(format::kMaxDims) ||
      (found.device_type != kDlCpu && found.device_type != kDlCuda)) {
    return Outcome::kLeft;
  }
  fixed.dtype = static_cast<uint8_t>(dtype);
  fixed.rank = static_cast<uint8_t>(found.rank);
  std::copy_n(found.shape, found.rank, message.dims);
  std::copy_n(found.strides, found.rank, message.dims + found.rank);
  fixed.data = reinterpret_cast<uint64_t>(found.data) + found.byte_offset;
  fixed.device_type = fixed.device_index = 0;
  fixed.stream = 0;
  if (found.device_type == kDlCuda) {
    const Ref index = number(static_cast<uint64_t>(found.device_index));
    const Outcome outcome = read_stream(index.get(), fixed);
    if (outcome != Outcome::kRead) return outcome;
  }
  if (const Outcome outcome = is_as_stored(tensor, dtype); outcome != Outcome::kRead)
    return outcome;
  return fixed.data != 0 ? Outcome::kRead : read_base(tensor, fixed);
}

Outcome TensorReader::read_attributes(PyObject* tensor, TensorMessage& message) {
  const Ref layout = attribute(tensor, layout_.get());
  if (failed(layout)) return Outcome::kFailed;
  if (layout.get() != strided_.get()) return Outcome::kLeft;
  const Ref nested = attribute(tensor, is_nested_.get());
  const Ref wrapped = nested ? call(is_wrapped_.get(), {tensor}) : Ref();
  if (failed(wrapped)) return Outcome::kFailed;
  if (is_true(nested.get()) || is_true(wrapped.get())) return Outcome::kLeft;
  Outcome outcome = read_device(tensor, message.fixed);
  if (outcome == Outcome::kRead) outcome = read_layout(tensor, message);
  if (outcome == Outcome::kRead)
    outcome = is_as_stored(tensor, static_cast<DType>(message.fixed.dtype));
  return outcome == Outcome::kRead ? read_base(tensor, message.fixed) : outcome;
}

/// @return kRead if memory holds the elements as they are, kLeft if reads negate or conjugate them.
Outcome TensorReader::is_as_stored(PyObject* tensor, DType dtype) {
  const bool is_complex = dtype == DType::kC64 || dtype == DType::kC128;
  if (!is_complex && format::number_class(dtype) != format::NumberClass::kFloat)
    return Outcome::kRead;
  const Ref negated = is_neg_(tensor);
  if (failed(negated)) return Outcome::kFailed;
  if (is_true(negated.get())) return Outcome::kLeft;
  if (!is_complex) return Outcome::kRead;
  const Ref conjugated = is_conj_(tensor);
  if (failed(conjugated)) return Outcome::kFailed;
  return is_true(conjugated.get()) ? Outcome::kLeft : Outcome::kRead;
}

Outcome TensorReader::read_device(PyObject* tensor, convtrace_tensor& fixed) {
  fixed.device_type = fixed.device_index = 0;
  fixed.stream = 0;
  const Ref on_cpu = attribute(tensor, is_cpu_.get());
  if (failed(on_cpu)) return Outcome::kFailed;
  if (is_true(on_cpu.get())) return Outcome::kRead;
  const Ref on_cuda = attribute(tensor, is_cuda_.get());
  if (failed(on_cuda)) return Outcome::kFailed;
  if (!is_true(on_cuda.get())) return Outcome::kLeft;
  const Ref index = method(tensor, get_device_.get());
  return read_stream(index.get(), fixed);
}

/// @param index  of the CUDA device; null with Python's error set.
Outcome TensorReader::read_stream(PyObject* index, convtrace_tensor& fixed) {
  if (is_none(raw_stream_.get())) return Outcome::kLeft;
  const Ref stream = call(raw_stream_.get(), {index});
  if (failed(stream)) return Outcome::kFailed;
  fixed.device_type = static_cast<uint8_t>(format::Device::Type::kCuda);
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
  if (static_cast<DType>(fixed.dtype) == DType::kUnknown) return Outcome::kLeft;
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

/// The address of a tensor's storage; read_memory() finds that of its elements.
Outcome TensorReader::read_base(PyObject* tensor, convtrace_tensor& fixed) {
  fixed.data = 0;
  fixed.storage_base = word(call(data_address_.get(), {tensor}));
  return failed(fixed.storage_base) ? Outcome::kFailed : Outcome::kRead;
}

/// Reads the memory of a tensor: addresses, storage, version. @pre The message has the type, and the
/// address of the elements or, where that is 0, of the storage.
Outcome TensorReader::read_memory(PyObject* tensor, TensorMessage& message) {
  convtrace_tensor& fixed = message.fixed;
  const uint64_t offset = word(storage_offset_(tensor));
  if (failed(offset)) return Outcome::kFailed;
  const uint64_t bytes = offset * format::element_bytes(static_cast<DType>(fixed.dtype));
  if (fixed.data != 0) {
    fixed.storage_base = fixed.data - bytes;
  } else {
    fixed.data = fixed.storage_base + bytes;
  }
  // No memory: a ZeroTensor, or storage that was taken away.
  const int64_t* const shape = message.dims;
  if (fixed.storage_base == 0 && std::find(shape, shape + fixed.rank, 0) == shape + fixed.rank)
    return Outcome::kLeft;
  const Ref version = attribute(tensor, version_.get());
  if (failed(version)) {  // inference tensors have no counter
    if (api.PyErr_ExceptionMatches(*api.PyExc_RuntimeError) == 0) return Outcome::kFailed;
    api.PyErr_Clear();
  }
  fixed.version = version ? static_cast<uint32_t>(word(version)) : 0;
  const Ref storage = untyped_storage_(tensor);
  fixed.storage = failed(storage) ? 0 : numbers_.of(storage.get());
  if (fixed.storage == 0) return Outcome::kFailed;
  fixed.storage_bytes = word(nbytes_(storage.get()));
  return failed(fixed.storage_bytes) ? Outcome::kFailed : Outcome::kRead;
}

}  // namespace convtrace::python
