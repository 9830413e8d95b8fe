#include "reader/trace_reader.h"

#include "reader/chunk_stream.h"

namespace convtrace::reader {

struct TraceReader::Impl {
  std::unique_ptr<TraceContainer> container;
  ChunkStream chunks;
  Chunk* chunk = nullptr;                ///< whose events are being returned
  std::span<const format::Event> batch;  ///< the events of it to return next
  bool chunk_resolved = false;           ///< all ids in its events are defined
  uint64_t events_without_definition = 0;

  Impl(std::unique_ptr<TraceContainer> opened, unsigned threads)
      : container(std::move(opened)), chunks(*container, threads) {}

  /// @return false at the end.
  bool next_batch();
};

bool TraceReader::Impl::next_batch() {
  for (;;) {
    if (chunk != nullptr) batch = chunk->decoder.next();
    if (!batch.empty()) return true;
    if (chunk != nullptr && chunk->decoder.not_understood() > 0)
      container->report(chunk->record, "events that only a newer convtrace understands");
    chunk = chunks.next();
    if (chunk == nullptr) return false;
    chunk_resolved = chunk->decoder.resolved_by(container->definition_check());
  }
}

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;

Result<std::unique_ptr<TraceReader>> TraceReader::open(const std::string& path, OpenPolicy policy,
                                                       unsigned threads) {
  Result<std::unique_ptr<ByteSource>> source = FileSource::open(path);
  if (!source.ok()) return source.status();
  return open(std::move(source).value(), policy, threads);
}

Result<std::unique_ptr<TraceReader>> TraceReader::open(std::unique_ptr<ByteSource> source,
                                                       OpenPolicy policy, unsigned threads) {
  auto container = TraceContainer::open(std::move(source), policy);
  if (!container.ok()) return container.status();
  // The list of records of a live file is reallocated by a refresh.
  if (policy == OpenPolicy::kLive) threads = 1;
  return std::unique_ptr<TraceReader>(
      new TraceReader(std::make_unique<Impl>(std::move(container).value(), threads)));
}

TraceState TraceReader::state() const {
  return impl_->container->state(impl_->events_without_definition);
}

const format::TraceMeta& TraceReader::meta() const { return impl_->container->meta(); }
const format::Definitions& TraceReader::definitions() const {
  return impl_->container->definitions();
}
const std::vector<Problem>& TraceReader::problems() const {
  return impl_->container->problems().kept();
}
const TraceContainer& TraceReader::container() const { return *impl_->container; }
RecordCounts TraceReader::counts() const { return impl_->container->counts(); }
uint64_t TraceReader::file_bytes() const { return impl_->container->source().size(); }
uint64_t TraceReader::events_without_definition() const { return impl_->events_without_definition; }

const format::Event* TraceReader::next() {
  for (;;) {
    if (impl_->batch.empty() && !impl_->next_batch()) return nullptr;
    const format::Event& event = impl_->batch.front();
    impl_->batch = impl_->batch.subspan(1);
    if (impl_->chunk_resolved) return &event;
    if (impl_->container->definition_check().resolves(event)) return &event;
    ++impl_->events_without_definition;
  }
}

void TraceReader::rewind() {
  impl_->chunk = nullptr;
  impl_->batch = {};
  impl_->chunks.rewind();
  impl_->events_without_definition = 0;
}

void TraceReader::select(std::function<KindSet(const format::RecordHeader&)> wanted,
                         Unwanted unwanted) {
  rewind();
  impl_->chunks.select(std::move(wanted), unwanted);
}

void TraceReader::refresh(bool ended) { impl_->container->refresh(ended); }

}  // namespace convtrace::reader
