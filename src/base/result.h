// Result<T>: the outcome of anything that can be expected to fail (bad input, no memory, an unsupported
// combination). An Error carries a code for programs and one sentence for the user.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lantern {

enum class ErrorCode {
  kInvalidArgument,  // the caller's request makes no sense; exit code 1
  kNotFound,         // a file, tensor or field is missing; exit code 1
  kUnsupported,      // well-formed, but Lantern cannot do it; exit code 1
  kCorrupt,          // a file contradicts itself or its format; exit code 1
  kIo,               // the operating system refused; exit code 1
  kOutOfMemory,      // host or device memory does not suffice; exit code 3
};

// Stable lower-case name of a code, e.g. "invalid_argument".
std::string_view to_string(ErrorCode code);

class Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  // One sentence: what, where, what to change.
  const std::string& message() const { return message_; }

  // Puts where the error happened in front of the sentence: "config.json: ...".
  Error within(std::string_view context) && {
    message_ = std::string(context) + ": " + message_;
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Precondition: ok(). std::get throws otherwise, which is a bug of the caller.
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Precondition: !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace lantern

#define LANTERN_CONCAT_INNER(a, b) a##b
#define LANTERN_CONCAT(a, b) LANTERN_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(status_expression); returns the error to the caller.
#define RETURN_IF_ERROR(expr)                                 \
  do {                                                        \
    if (auto lantern_status = (expr); !lantern_status.ok()) { \
      return std::move(lantern_status).error();               \
    }                                                         \
  } while (false)

// ASSIGN_OR_RETURN(auto x, result_expression); binds the value or returns the error.
#define ASSIGN_OR_RETURN(declaration, expr) \
  ASSIGN_OR_RETURN_IMPL(LANTERN_CONCAT(lantern_result_, __LINE__), declaration, expr)
#define ASSIGN_OR_RETURN_IMPL(result, declaration, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return std::move(result).error();    \
  declaration = std::move(result).value()
