#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "ops/memory_read.h"

namespace lantern::cli {

Result<int> run_bench_memory(const Values& values) {
  ThreadPool threads(static_cast<int>(values.integer("threads")));
  ASSIGN_OR_RETURN(const ReadBandwidth result, measure_read_bandwidth(threads, values.integer("size"),
                                                                      static_cast<int>(values.integer("repetitions"))));
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object()
        .field("read_gb_per_second", result.median_bytes_per_second / 1e9)
        .field("best_gb_per_second", result.best_bytes_per_second / 1e9)
        .field("bytes", result.bytes)
        .field("repetitions", result.repetitions)
        .field("threads", result.threads);
    write_text(json.end_object().take() + "\n");
  } else {
    write_text(fmt::format("read {:.2f} GB/s (best {:.2f}) with {} threads\n", result.median_bytes_per_second / 1e9,
                           result.best_bytes_per_second / 1e9, result.threads));
  }
  return kSuccess;
}

}  // namespace lantern::cli
