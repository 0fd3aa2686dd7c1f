#include "cli/batch_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>

#include "cli/console.h"

namespace lantern::cli {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 64;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv): names a line, in this run and the next.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::optional<std::string_view> text_member(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string_view(value->get_string());
}

}  // namespace

Result<BatchInput> BatchInput::open(const std::string& path) {
  BatchInput input;
  const auto count = [&](std::istream& stream) {
    for (std::string line; std::getline(stream, line);) input.num_lines_ += is_blank(line) ? 0 : 1;
  };
  if (path == "-") {
    ASSIGN_OR_RETURN(std::string text, read_text(path));
    input.standard_input_.str(std::move(text));
    count(input.standard_input_);
    input.standard_input_.clear();
    input.standard_input_.seekg(0);
    return input;
  }
  input.is_file_ = true;
  input.file_.open(path, std::ios::binary);
  // A folder opens but does not read.
  if (input.file_) input.file_.peek();
  if (!input.file_.is_open() || input.file_.bad())
    return Error(ErrorCode::kIo, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  input.file_.clear();
  count(input.file_);
  input.file_.clear();
  input.file_.seekg(0);
  return input;
}

std::optional<BatchLine> BatchInput::next() {
  std::istream& stream = is_file_ ? static_cast<std::istream&>(file_) : standard_input_;
  for (std::string text; std::getline(stream, text);) {
    ++number_;
    if (is_blank(text)) continue;
    BatchLine line;
    line.number = number_;
    line.id = fmt::format("batch_req_{}_{:016x}", number_, hash_of(text));
    read(text, line);
    if (!line.fault.empty()) line.fault = fmt::format("line {}: {}", number_, line.fault);
    return line;
  }
  return std::nullopt;
}

void BatchInput::read(std::string_view text, BatchLine& line) {
  const auto fail = [&](const char* code, std::string message) {
    line.fault_code = code;
    line.fault = std::move(message);
  };
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code failure;
  const json::value document = json::parse(text, failure, {}, options);
  if (failure) return fail("invalid_json", fmt::format("is not JSON: {}", failure.message()));
  const json::object* object = document.if_object();
  if (object == nullptr) return fail("invalid_json", "is not a JSON object");
  const auto custom_id = text_member(*object, "custom_id");
  if (!custom_id || custom_id->empty())
    return fail("missing_custom_id", "custom_id is missing; give every request a name of its own");
  const auto [earlier, is_new] = lines_.emplace(*custom_id, line.number);
  if (!is_new) {
    return fail("duplicate_custom_id",
                fmt::format("custom_id '{}' is that of line {} already", *custom_id, earlier->second));
  }
  line.custom_id = *custom_id;
  const auto method = text_member(*object, "method");
  if (method && *method != "POST") return fail("invalid_method", fmt::format("method is '{}'; use POST", *method));
  const auto url = text_member(*object, "url");
  const auto endpoint = parse_openai_endpoint(url.value_or(""));
  if (!endpoint) {
    return fail("invalid_url",
                fmt::format("url is '{}'; use /v1/completions or /v1/chat/completions", url.value_or("")));
  }
  line.endpoint = *endpoint;
  const json::value* body = object->if_contains("body");
  if (body == nullptr || !body->is_object()) return fail("missing_body", "body is missing; it is a JSON object");
  line.body = json::serialize(*body);
}

}  // namespace lantern::cli
