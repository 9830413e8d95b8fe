#include "reader/trace_reader.h"

#include "reader/chunk_stream.h"

namespace convtrace::reader {

struct TraceReader::Impl {
  std::unique_ptr<TraceContainer> container;
  ChunkStream chunks;
  Chunk* chunk = nullptr;       ///< whose events are given out
  bool chunk_resolved = false;  ///< all that its events name is defined
  uint64_t events_without_definition = 0;

  Impl(std::unique_ptr<TraceContainer> opened, unsigned threads)
      : container(std::move(opened)), chunks(*container, threads) {}
};

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
  // The records of a live file move while it is refreshed.
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

bool TraceReader::next(format::Event& event) {
  for (;;) {
    const auto outcome =
        impl_->chunk != nullptr ? impl_->chunk->decoder.next(event) : EventDecoder::Outcome::kEnd;
    switch (outcome) {
      case EventDecoder::Outcome::kEnd:
        impl_->chunk = impl_->chunks.next();
        if (impl_->chunk == nullptr) return false;
        impl_->chunk_resolved =
            impl_->chunk->decoder.resolved_by(impl_->container->definition_check());
        break;
      case EventDecoder::Outcome::kNotUnderstood:
        impl_->container->report(impl_->chunk->record,
                                 "events that only a newer convtrace understands");
        break;
      case EventDecoder::Outcome::kEvent:
        if (impl_->chunk_resolved) return true;
        if (impl_->container->definition_check().resolves(event)) return true;
        ++impl_->events_without_definition;
        break;
    }
  }
}

void TraceReader::rewind() {
  impl_->chunk = nullptr;
  impl_->chunks.rewind();
  impl_->events_without_definition = 0;
}

void TraceReader::skip_chunks(std::function<bool(const format::RecordHeader&)> unwanted) {
  rewind();
  impl_->chunks.skip(std::move(unwanted));
}

void TraceReader::refresh(bool ended) { impl_->container->refresh(ended); }

}  // namespace convtrace::reader
