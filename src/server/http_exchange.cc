#include <sys/socket.h>

#include <boost/asio/post.hpp>

#include "server/http_connection.h"

namespace lantern {

bool BodyAllowance::grow_to(size_t bytes) {
  const auto more = static_cast<int64_t>(bytes) - bytes_;
  if (more <= 0) return true;
  const int64_t now = shared_->body_bytes.fetch_add(more) + more;
  bytes_ += more;
  return now <= static_cast<int64_t>(shared_->limits.max_all_bodies_bytes);
}

void HttpExchangeImpl::wake_locked() {
  if (!waited_for_) return;
  waited_for_ = false;
  // The thread outlives the post, the connection need not.
  boost::asio::post(thread_->context, [connection = connection_, thread = thread_] {
    if (const auto it = connection.lock()) it->wake();
  });
}

std::string HttpExchangeImpl::framed(std::string piece) const {
  return framing_ == HttpFraming::kChunked ? chunk_text(piece) : std::move(piece);
}

void HttpExchangeImpl::send_locked(std::string& piece) {
  const ssize_t taken = ::send(socket_, piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (taken > 0) piece.erase(0, static_cast<size_t>(taken));
  last_sent_ = Clock::now();
}

bool HttpExchangeImpl::reply(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (gone_ || (state_ != State::kOpen && state_ != State::kStarted) || !pieces_.empty()) return false;
  response_ = std::move(response);
  state_ = State::kReplied;
  wake_locked();
  return true;
}

void HttpExchangeImpl::start(HttpResponse head) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  response_ = std::move(head);
  state_ = State::kStarted;
  wake_locked();
}

bool HttpExchangeImpl::write(std::string piece) {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_ || (state_ != State::kStarted && state_ != State::kHeadSent)) return false;
    if (piece.empty()) return true;  // an empty chunk would end the stream
    piece = framed(std::move(piece));
    // Nearly always the socket takes all of it, and no other thread need be woken for a token. What it refuses, or
    // fails at, is the connection's to deal with.
    if (waited_for_ && state_ == State::kHeadSent) send_locked(piece);
    if (piece.empty()) return true;
    unsent_ += piece.size();
    pieces_.push_back(std::move(piece));
    if (unsent_ <= shared_->limits.max_unsent_bytes) {
      wake_locked();
      return true;
    }
    gone_ = true;
    pieces_.clear();
    gone = std::exchange(on_gone_, nullptr);
    wake_locked();
    ++shared_->gone;
  }
  if (gone) gone();
  return false;
}

void HttpExchangeImpl::finish() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kStarted && state_ != State::kHeadSent) return;
  finished_ = true;
  wake_locked();
}

void HttpExchangeImpl::on_gone(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) {
      on_gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

bool HttpExchangeImpl::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void HttpExchangeImpl::set_gone() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || state_ == State::kOver) return;
    gone_ = true;
    pieces_.clear();
    gone = std::exchange(on_gone_, nullptr);
    wake_locked();
  }
  ++shared_->gone;
  if (gone) gone();
}

bool HttpExchangeImpl::is_stream() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kStarted || state_ == State::kHeadSent;
}

HttpExchangeImpl::Next HttpExchangeImpl::take(Clock::time_point now) {
  std::function<void()> released;  // what it holds is let go outside of the lock
  const std::lock_guard lock(mutex_);
  waited_for_ = false;
  const bool silent = now - last_sent_ >= shared_->limits.ping_interval;
  if (gone_) return {.kind = Next::Kind::kEnd};
  if (state_ == State::kReplied) {
    state_ = State::kOver;
    released = std::exchange(on_gone_, nullptr);
    return {.kind = Next::Kind::kReply, .response = std::move(response_)};
  }
  if (state_ == State::kStarted && (silent || finished_ || !pieces_.empty())) {
    state_ = State::kHeadSent;
    return {.kind = Next::Kind::kHead, .response = std::move(response_)};
  }
  if (state_ == State::kHeadSent && !pieces_.empty()) {
    std::string piece = std::move(pieces_.front());
    pieces_.pop_front();
    unsent_ -= piece.size();
    last_sent_ = now;
    return {.kind = Next::Kind::kPiece, .response = {}, .piece = std::move(piece)};
  }
  if (state_ == State::kHeadSent && finished_) {
    state_ = State::kOver;
    released = std::exchange(on_gone_, nullptr);
    return {.kind = Next::Kind::kEnd};
  }
  if (state_ == State::kHeadSent && silent) {
    last_sent_ = now;
    return {.kind = Next::Kind::kPiece, .response = {}, .piece = framed(": ping\n\n")};
  }
  waited_for_ = true;
  const bool streams = state_ == State::kStarted || state_ == State::kHeadSent;
  return {.look_at = (streams ? last_sent_ : now) + shared_->limits.ping_interval};
}

}  // namespace lantern
