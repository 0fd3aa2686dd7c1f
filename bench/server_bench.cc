// What the server costs beside the model: processor time of a streamed token above that of a bare send(), the time from
// a token's making to its arrival, and the memory of idle connections. The executor computes nothing and makes tokens
// at a steady pace; the clients are a process of their own. Prints one JSON object to stdout.
//
//   build/release/bench/server_bench [rounds]
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/median.h"
#include "null_executor.h"
#include "server/api_server.h"

namespace lantern {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kClients = 64;
constexpr int32_t kTokens = 400;  // of each answer
constexpr int32_t kIdle = 10000;
constexpr auto kStep = std::chrono::milliseconds(5);
constexpr int32_t kFirstId = 300;  // of a client's prompt: the executor knows it by this

// What server and clients tell each other; times are of the steady clock, which both share.
struct Shared {
  std::array<std::array<int64_t, kTokens>, kClients> made{};
  std::array<std::array<int64_t, kTokens>, kClients> came{};
  int64_t event_bytes = 0;  // of a token, with the frame of its chunk
};

int64_t now() { return Clock::now().time_since_epoch().count(); }

double cpu_seconds(clockid_t clock) {
  timespec time{};
  CHECK(clock_gettime(clock, &time) == 0, "no such clock");
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void pin_to(int32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  CHECK(sched_setaffinity(0, sizeof(set), &set) == 0, "core {} cannot be had", core);
}

// Tokens of a text at a steady pace, and when each was made.
class PacedExecutor final : public Executor {
 public:
  PacedExecutor(const EngineSettings& settings, std::vector<TokenId> text, Shared& shared)
      : null_(settings), text_(std::move(text)), shared_(shared) {
    slots_.resize(static_cast<size_t>(settings.limits.max_requests) + 1);  // and the dummy
  }

  Status submit(const StepBatch& batch) override {
    if (clock_ == 0) {
      clockid_t clock = 0;
      CHECK(pthread_getcpuclockid(pthread_self(), &clock) == 0, "no clock of the engine's thread");
      clock_ = clock;
    }
    for (const SlotInit& init : batch.slot_inits)
      slots_[static_cast<size_t>(init.slot)] = {.client = init.sequence->request->prompt.front() - kFirstId, .made = 0};
    Rows rows;
    for (const StepRow& row : batch.rows) rows.push_back(row.samples ? row.slot : -1);
    rows_.push_back(std::move(rows));
    return null_.submit(batch);
  }
  bool ready() const override { return null_.ready() && Clock::now() >= next_; }
  Status wait(StepResults& results) override {
    std::this_thread::sleep_until(next_);
    next_ = std::max(next_ + kStep, Clock::now());
    RETURN_IF_ERROR(null_.wait(results));
    const int64_t time = now();
    for (size_t r = 0; r < rows_.front().size(); ++r) {
      if (rows_.front()[r] < 0) continue;
      Slot& slot = slots_[static_cast<size_t>(rows_.front()[r])];
      results.row(static_cast<int32_t>(r))[0] = text_[static_cast<size_t>(slot.made) % text_.size()];
      if (slot.client >= 0 && slot.client < kClients && slot.made < kTokens)
        shared_.made[static_cast<size_t>(slot.client)][static_cast<size_t>(slot.made)] = time;
      ++slot.made;
    }
    rows_.pop_front();
    return {};
  }
  // Of the engine's thread; 0 before its first step.
  clockid_t clock() const { return clock_; }

 private:
  struct Slot {
    int32_t client = -1;
    int32_t made = 0;
  };
  using Rows = std::vector<int32_t>;  // slots of the rows that make a token

  NullExecutor null_;
  std::vector<TokenId> text_;
  Shared& shared_;
  std::vector<Slot> slots_;
  std::deque<Rows> rows_;
  Clock::time_point next_ = Clock::now();
  std::atomic<clockid_t> clock_ = 0;
};

// One byte or number from process to process.
class Line {
 public:
  Line() { CHECK(pipe(ends_.data()) == 0, "no pipe"); }
  void say(int32_t what) const { CHECK(write(ends_[1], &what, sizeof(what)) == sizeof(what), "the other has gone"); }
  int32_t hear() const {
    int32_t what = 0;
    CHECK(read(ends_[0], &what, sizeof(what)) == sizeof(what), "the other has gone");
    return what;
  }

 private:
  std::array<int, 2> ends_{};
};

enum Task : int32_t { kStream, kBare, kHold, kEnd };

int connect_to(int32_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  CHECK(made >= 0 && connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
        "no connection to port {}", port);
  const int on = 1;
  setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return made;
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    CHECK(sent > 0, "a connection broke");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

// The clients' side: streams are read as they come, each event is stamped.
class Clients {
 public:
  Clients(Shared& shared, int32_t port) : shared_(shared), port_(port) {}

  void stream() const {
    std::vector<pollfd> sockets;
    sockets.reserve(kClients);
    for (int32_t i = 0; i < kClients; ++i) {
      sockets.push_back({.fd = connect_to(port_), .events = POLLIN, .revents = 0});
      const std::string body = fmt::format(R"({{"prompt":[{},11,12],"max_tokens":{},"ignore_eos":true,"stream":true}})",
                                           kFirstId + i, kTokens);
      send_all(sockets.back().fd, fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                              "application/json\r\nContent-Length: {}\r\n\r\n{}",
                                              body.size(), body));
    }
    std::array<std::string, kClients> rest;
    std::array<int32_t, kClients> events{};
    int64_t bytes = 0;
    read_until_closed(sockets, [&](size_t i, std::string_view part) {
      const int64_t time = now();
      bytes += static_cast<int64_t>(part.size());
      if (events[i] == 0 && rest[i].empty()) CHECK(part.starts_with("HTTP/1.1 200 "), "refused: {}", part);
      rest[i] += part;
      size_t at = 0;
      for (size_t found; (found = rest[i].find("\n\n", at)) != std::string::npos; at = found + 2) {
        if (events[i] < kTokens) shared_.came[i][static_cast<size_t>(events[i])] = time;
        ++events[i];
      }
      rest[i].erase(0, at);
      return events[i] <= kTokens;  // [DONE] is the one behind them
    });
    for (const int32_t count : events) CHECK(count == kTokens + 1, "an answer of {} events", count);
    shared_.event_bytes = bytes / (int64_t{kClients} * kTokens);
  }

  void read_bare(int32_t port) const {
    std::vector<pollfd> sockets;
    sockets.reserve(kClients);
    for (int32_t i = 0; i < kClients; ++i) sockets.push_back({.fd = connect_to(port), .events = POLLIN, .revents = 0});
    read_until_closed(sockets, [](size_t, std::string_view) { return true; });
  }

  // Connections that had an answer each.
  std::vector<int> hold() const {
    std::vector<int> held;
    held.reserve(kIdle);
    for (int32_t i = 0; i < kIdle; ++i) {
      held.push_back(connect_to(port_));
      send_all(held.back(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
      std::array<char, 4096> bytes{};
      CHECK(recv(held.back(), bytes.data(), bytes.size(), 0) > 0, "no answer");
    }
    return held;
  }

 private:
  // `take` returns false where no more is wanted.
  template <class Take>
  static void read_until_closed(std::vector<pollfd>& sockets, const Take& take) {
    std::array<char, 65536> bytes{};
    for (size_t open = sockets.size(); open > 0;) {
      CHECK(poll(sockets.data(), sockets.size(), 60'000) > 0, "nothing comes any more");
      for (size_t i = 0; i < sockets.size(); ++i) {
        if (sockets[i].fd < 0 || sockets[i].revents == 0) continue;
        const ssize_t got = recv(sockets[i].fd, bytes.data(), bytes.size(), 0);
        if (got > 0 && take(i, std::string_view(bytes.data(), static_cast<size_t>(got)))) continue;
        close(sockets[i].fd);
        sockets[i].fd = -1;
        --open;
      }
    }
  }

  Shared& shared_;
  int32_t port_;
};

[[noreturn]] void be_clients(Shared& shared, const Line& tasks, const Line& answers) {
  if (std::thread::hardware_concurrency() > 1) pin_to(1);
  CHECK(reserve_descriptors(kIdle).ok(), "too few descriptors");
  const Clients clients(shared, tasks.hear());
  std::vector<int> held;
  while (true) {
    const int32_t task = tasks.hear();
    if (task == kEnd) _exit(0);
    if (task == kStream) clients.stream();
    if (task == kBare) clients.read_bare(tasks.hear());
    if (task == kHold) held = clients.hold();
    answers.say(task);
  }
}

// Processor seconds of a send() of `bytes` to one of as many connections as there are clients, at the same pace.
double bare_send_seconds(const Line& tasks, const Line& answers, int64_t bytes) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  CHECK(bind(listener, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(listener, kClients) == 0,
        "no port");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  tasks.say(kBare);
  tasks.say(ntohs(address.sin_port));
  std::vector<int> sockets;
  for (int32_t i = 0; i < kClients; ++i) {
    sockets.push_back(accept(listener, nullptr, nullptr));
    const int on = 1;
    setsockopt(sockets.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  const std::string event(static_cast<size_t>(bytes), 'x');
  Clock::time_point next = Clock::now();
  double seconds = 0;
  for (int32_t token = 0; token < kTokens; ++token) {
    std::this_thread::sleep_until(next += kStep);
    const double begin = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (const int socket : sockets) send_all(socket, event);
    seconds += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
  }
  for (const int socket : sockets) close(socket);
  close(listener);
  answers.hear();
  return seconds / (double{kClients} * kTokens);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double percentile(std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

struct Round {
  double token_us = 0;  // of the server, the engine's thread left out
  double send_us = 0;
  double p50_ms = 0;
  double p99_ms = 0;
};

Round measure(const Shared& shared, const PacedExecutor& executor, const Line& tasks, const Line& answers) {
  const auto engine = [&] { return executor.clock() == 0 ? 0 : cpu_seconds(executor.clock()); };
  const double begin = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - engine();
  tasks.say(kStream);
  answers.hear();
  const double server = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - engine() - begin;
  std::vector<double> late;
  for (size_t client = 0; client < kClients; ++client) {
    for (size_t token = 1; token < kTokens; ++token)
      late.push_back(1e-6 * static_cast<double>(shared.came[client][token] - shared.made[client][token]));
  }
  std::ranges::sort(late);
  return {.token_us = 1e6 * server / (double{kClients} * kTokens),
          .send_us = 1e6 * bare_send_seconds(tasks, answers, shared.event_bytes),
          .p50_ms = percentile(late, 0.5),
          .p99_ms = percentile(late, 0.99)};
}

int run(int32_t rounds) {
  // Before any thread is.
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no shared memory");
  Shared& shared = *new (memory) Shared;
  const Line tasks;
  const Line answers;
  const pid_t child = fork();
  CHECK(child >= 0, "no process");
  if (child == 0) be_clients(shared, tasks, answers);
  pin_to(0);

  HttpLimits limits;
  limits.max_connections = 12000;
  CHECK(reserve_descriptors(limits.max_connections).ok(), "too few descriptors");
  ApiSettings settings;
  settings.access_log = AccessLog::Format::kNone;
  ApiServer api(std::move(settings));
  const std::unique_ptr<HttpServer> http = std::move(HttpServer::listen("127.0.0.1", 0, limits, api)).value();
  api.set_http(http.get());
  http->start();

  PacedExecutor* executor = nullptr;
  ServedModelOptions options;
  options.engine.model_dir = LANTERN_SOURCE_DIR "/models/tiny";
  options.engine.device = "cpu";
  options.engine.threads = 1;
  options.engine.kv_cache_bytes = int64_t{256} << 20;  // for all tokens: a preempted answer would lose its place
  options.engine.max_num_seqs = kClients;
  options.streams = true;
  // Each with text of its own, so that each makes an event.
  const std::vector<TokenId> text = Tokenizer::load(options.engine.model_dir)
                                        ->encode("The quick brown fox jumps over the lazy dog.", {.add_special = false})
                                        .value();
  options.engine.hooks = {{.wrap = [&](std::unique_ptr<Executor>) -> std::unique_ptr<Executor> {
    EngineSettings fitting;
    fitting.limits.max_requests = kClients;
    auto paced = std::make_unique<PacedExecutor>(fitting, text, shared);
    executor = paced.get();
    return paced;
  }}};
  api.attach(std::move(load_served_model(options)).value());
  tasks.say(http->port());

  measure(shared, *executor, tasks, answers);  // warms up, and the engine's thread has its clock from here on
  std::vector<Round> all;
  all.reserve(static_cast<size_t>(rounds));
  for (int32_t i = 0; i < rounds; ++i) all.push_back(measure(shared, *executor, tasks, answers));
  CHECK(api.model()->loaded.engine->report().preemptions == 0, "the caches are too small");
  const int64_t before = resident_bytes();
  tasks.say(kHold);
  answers.hear();
  CHECK(http->stats().connections >= kIdle, "connections are missing");
  const int64_t idle_bytes = resident_bytes() - before;

  const auto of = [&](double Round::* value) {
    std::vector<double> values;
    values.reserve(all.size());
    for (const Round& round : all) values.push_back(round.*value);
    return values;
  };
  const auto list = [&](const char* name, double Round::* value) {
    fmt::print("  \"{}\": [", name);
    for (size_t i = 0; i < all.size(); ++i) fmt::print("{}{:.3f}", i == 0 ? "" : ", ", all[i].*value);
    fmt::print("],\n");
  };
  fmt::print("{{\n  \"clients\": {}, \"tokens_each\": {}, \"step_ms\": {}, \"event_bytes\": {},\n", kClients, kTokens,
             kStep.count(), shared.event_bytes);
  list("server_cpu_us_per_token", &Round::token_us);
  list("bare_send_cpu_us", &Round::send_us);
  list("added_latency_p50_ms", &Round::p50_ms);
  list("added_latency_p99_ms", &Round::p99_ms);
  const double token = median(of(&Round::token_us));
  const double send = median(of(&Round::send_us));
  fmt::print("  \"median_server_cpu_us_per_token\": {:.3f}, \"median_bare_send_cpu_us\": {:.3f},\n", token, send);
  fmt::print("  \"median_cpu_us_above_send\": {:.3f}, \"median_ratio_to_send\": {:.3f},\n", token - send, token / send);
  fmt::print("  \"median_added_latency_p50_ms\": {:.3f}, \"median_added_latency_p99_ms\": {:.3f},\n",
             median(of(&Round::p50_ms)), median(of(&Round::p99_ms)));
  fmt::print("  \"idle_connections\": {}, \"idle_connections_mib\": {:.1f}, \"bytes_each\": {}\n}}\n", kIdle,
             static_cast<double>(idle_bytes) / (1 << 20), idle_bytes / kIdle);
  std::fflush(stdout);
  tasks.say(kEnd);
  waitpid(child, nullptr, 0);
  http->stop();
  api.set_http(nullptr);
  return 0;
}

}  // namespace
}  // namespace lantern

int main(int argc, char** argv) { return lantern::run(std::clamp(argc > 1 ? std::atoi(argv[1]) : 5, 1, 100)); }
