#include "model/quantize.h"

#include <fmt/format.h>

#include <optional>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"

namespace lantern::cli {

Result<int> run_quantize(const Values& values) {
  ASSIGN_OR_RETURN(const std::filesystem::path source, model_dir(values));
  const std::filesystem::path target = values.text("output");
  if (target.empty()) return Error(ErrorCode::kInvalidArgument, "--output names no folder");
  QuantizeOptions options;
  options.threads = static_cast<int>(values.integer("threads"));
  std::optional<Progress> progress;
  const Result<QuantizeSummary> quantized =
      quantize_checkpoint(source, target, options, [&](int64_t done, int64_t total) {
        if (!progress) progress.emplace("quantize", total, values.is_on("quiet"));
        progress->update(done);
        return !interrupted();
      });
  progress.reset();
  if (!quantized.ok()) {
    if (!interrupted()) return quantized.error();
    print_error(quantized.error().message());
    return interrupt_exit_code();
  }
  const QuantizeSummary& summary = *quantized;
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object()
        .field("model", source.string())
        .field("output", target.string())
        .field("tensors", summary.tensors)
        .field("quantized_tensors", summary.quantized_tensors)
        .field("bytes_before", summary.bytes_before)
        .field("bytes_after", summary.bytes_after);
    write_text(json.end_object().take() + "\n");
  } else {
    write_text(fmt::format("{}: {} of {} tensors in FP8, {:.1f} MB instead of {:.1f} MB\n", target.string(),
                           summary.quantized_tensors, summary.tensors, static_cast<double>(summary.bytes_after) / 1e6,
                           static_cast<double>(summary.bytes_before) / 1e6));
  }
  return kSuccess;
}

}  // namespace lantern::cli
