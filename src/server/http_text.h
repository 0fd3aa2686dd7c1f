// What of HTTP is text alone: heads of answers, targets, and which heads are refused. For this room's sources only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace lantern {

struct HttpTarget {
  std::string path;
  std::string query;
};
// Of origin-form ("/v1/models?x=1"), absolute-form ("http://host/v1/models") and "*". Nothing where it is none of them.
std::optional<HttpTarget> parse_target(std::string_view target);

struct HttpHeadFault {
  int32_t status;
  std::string message;
};
// What may be read in two ways is refused: two lengths, a length beside chunks, an unknown transfer coding, two hosts
// or none. `version` is 10 or 11.
std::optional<HttpHeadFault> check_framing(const HttpFields& fields, int32_t version);

enum class HttpFraming : uint8_t { kLength, kChunked, kUntilClose };
// The head of an answer as it is sent, up to and with the empty line. `length` counts with kLength.
std::string head_text(const HttpResponse& response, int32_t version, HttpFraming framing, size_t length, bool close);
// One chunk with its frame.
std::string chunk_text(std::string_view piece);

}  // namespace lantern
