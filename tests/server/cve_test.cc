// What broke other servers, by its number in the lists of vulnerabilities: here it is refused, or does nothing. After
// each the next request is answered as ever. Tests with the numbers of others stand beside what they are about: keys,
// tools, clients that leave (tests/server), tokenizers (src/text), headers of weights (src/model).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "process.h"
#include "process_state.h"
#include "server/grammar.h"
#include "server_process.h"
#include "socket_client.h"
#include "text/output_parser.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

const char* const kCompletions = "/v1/completions";
const char* const kChat = "/v1/chat/completions";
const char* const kMessages = "/v1/messages";
const std::string kHi = R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":2)";

class CveTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    TinyServerOptions options;
    options.num_draft_tokens = 2;
    server_ = new TinyServer(std::move(options));
    expected_ = server_->greedy(kQuestion, 12);
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void TearDown() override {
    const json::object request{{"prompt", kQuestion}, {"max_tokens", 12}, {"temperature", 0}};
    const Answer answer = post(port(), kCompletions, json::serialize(request));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(text_of(answer.json()["choices"].at(0).at("text")), expected_);
    EXPECT_TRUE(server_->wait_until_quiet());
  }
  static uint16_t port() { return server_->port(); }
  static int status(const char* path, const std::string& body) { return post(port(), path, body).status; }
  static std::string code(const Answer& answer) { return text_of(answer.json()["error"].at("code")); }

  static TinyServer* server_;
  static std::string expected_;
};
TinyServer* CveTest::server_ = nullptr;
std::string CveTest::expected_;

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "{}";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST_F(CveTest, Cve_2025_48942_48943_FormsThatAreNone) {
  for (const char* form : {R"("response_format":{"type":"json_schema"})", R"("response_format":{"type":"xml"})",
                           R"("response_format":[])", R"("response_format":{"type":"json_schema","json_schema":7})",
                           R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":7}}})",
                           R"("structured_outputs":{"json":"not a schema"})", R"("structured_outputs":{"regex":"["})",
                           R"("structured_outputs":{"regex":"(?<x"})", R"("structured_outputs":{"regex":"a{9999999}"})",
                           R"("structured_outputs":{"grammar":"root ::= "})", R"("structured_outputs":{"choice":[]})",
                           R"("guided_json":{"type":"object","properties":[]})", R"("guided_regex":7)",
                           R"("structured_outputs":{"regex":"a","choice":["b"]})"}) {
    const Answer answer = post(port(), kChat, fmt::format("{{{},{}}}", kHi, form));
    EXPECT_TRUE(answer.status == 400 || (!have_grammars() && answer.status == 501)) << form << answer.body;
  }
}

// Marks that begin and never end, doubled in length: time doubles too.
TEST_F(CveTest, Cve_2025_48887_ParsersTakeLinearTime) {
  const OutputParserOptions options{.tools = {R"({"name":"f","parameters":{"properties":{"a":{"type":"object"}}}})"}};
  for (const char* unit :
       {"<", "</think", "<think>", "<tool_call>", "<tool_call>f<arg_key>", "<|tool_call_begin|>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜DSML｜invoke name=\"f\">", "[[[{\"", "\\\"", " "}) {
    std::string text;
    while (text.size() < size_t{1} << 20) text += unit;
    for (const ChatFormat format : {ChatFormat::kDeepSeekV3, ChatFormat::kDeepSeekV31, ChatFormat::kDeepSeekV32,
                                    ChatFormat::kGlm45, ChatFormat::kKimiK2Thinking}) {
      const auto start = Clock::now();
      OutputParser parser(format, options);
      for (size_t at = 0; at < text.size(); at += 64) parser.push(std::string_view(text).substr(at, 64));
      parser.finish();
      // A parser that goes back to the beginning of a mark looks at 2^39 bytes.
      EXPECT_LT(Clock::now() - start, seconds(20)) << unit << " for " << to_string(format);
    }
  }
}

TEST_F(CveTest, Cve_2025_9141_ArgumentsAreText) {
  const std::string code = R"json({"a": "__import__('os').abort()", "b": "${jndi:ldap://x}", "c": "`kill $$`"})json";
  const ParsedOutput parsed =
      parse_output(ChatFormat::kKimiK2,
                   "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" + code +
                       "<|tool_call_end|><|tool_calls_section_end|>",
                   {.tools = {R"({"name":"f"})"}});
  ASSERT_EQ(parsed.tool_calls.size(), 1u);
  EXPECT_EQ(parsed.tool_calls[0].arguments, code);
}

// Rules that call themselves, or one another, or are nested: they end in a sentence or in a grammar.
TEST_F(CveTest, Cve_2026_2069_GrammarsThatRecurse) {
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 1500; ++i) chain += fmt::format("r{} ::= \"(\" r{} \")\" | \"x\"\n", i, (i + 1) % 1500);
  std::string alternatives = "root ::= \"\"";
  for (int i = 0; i < 2000; ++i) alternatives += " | root \"a\"";
  for (const std::string& grammar :
       {chain, alternatives, "root ::= " + std::string(190, '(') + "\"a\"" + std::string(190, ')'),
        "root ::= " + std::string(20'000, '(') + "\"a\"" + std::string(20'000, ')'), std::string("root ::= root"),
        std::string("root ::= root root | \"\"")}) {
    json::object body{{"prompt", "Hello"}, {"max_tokens", 8}};
    body["structured_outputs"] = json::object{{"grammar", grammar}};
    const Answer answer = post(port(), kCompletions, json::serialize(body));
    EXPECT_TRUE(answer.status == 200 || answer.status == 400 || answer.status == 503 || !have_grammars())
        << grammar.substr(0, 60) << answer.status << answer.body;
  }
}

// Choices are counted before anything is made of them.
TEST_F(CveTest, AMillionChoicesAreRefusedAtOnce) {
  const int64_t before = resident_bytes();
  const auto start = Clock::now();
  EXPECT_EQ(status(kCompletions, R"({"prompt":"x","n":1000000})"), 400);
  EXPECT_EQ(status(kCompletions, R"({"prompt":"x","best_of":1000000})"), 400);
  EXPECT_EQ(status(kCompletions, R"({"prompt":"x","prompt_logprobs":-1})"), 400);
  EXPECT_EQ(status(kCompletions, R"({"prompt":"x","logprobs":-1})"), 400);
  EXPECT_LT(Clock::now() - start, seconds(5));
  if (kMemoryIsPlain) {
    EXPECT_LT(resident_bytes() - before, int64_t{4} << 20);
  }
}

// Fields of sampling in pairs, with drafts.
TEST_F(CveTest, Cve_2026_44223_PairsOfFieldsWithDrafts) {
  const std::vector<std::string> fields = {R"("presence_penalty":1.5)",
                                           R"("frequency_penalty":-1)",
                                           R"("repetition_penalty":1.3)",
                                           R"("temperature":0)",
                                           R"("top_k":3)",
                                           R"("min_p":0.2)",
                                           R"("logit_bias":{"5":-100})",
                                           R"("min_tokens":3)",
                                           R"("logprobs":2)",
                                           R"("prompt_logprobs":1)",
                                           R"("stop":["a"])",
                                           R"("bad_words":["the"])",
                                           R"("n":2)",
                                           R"("echo":true)",
                                           R"("ignore_eos":true)",
                                           R"("seed":7)"};
  for (size_t a = 0; a < fields.size(); ++a) {
    for (size_t b = a + 1; b < fields.size(); ++b) {
      const Answer answer =
          post(port(), kCompletions, fmt::format(R"({{"prompt":"Hello","max_tokens":5,{},{}}})", fields[a], fields[b]));
      EXPECT_EQ(answer.status, 200) << fields[a] << fields[b] << answer.body;
    }
  }
}

TEST_F(CveTest, Cve_2024_8768_PromptsOfNothing) {
  for (const char* prompt : {R"("")", "[]", "[[]]", R"([""])", R"(["x",""])", "null", "{}", "[null]", "[1,\"x\"]"})
    EXPECT_EQ(status(kCompletions, fmt::format(R"({{"prompt":{},"max_tokens":2}})", prompt)), 400) << prompt;
  for (const char* prompt : {R"(" ")", R"("\n\n")", R"("\u0000")", "[0]", "[[0],[1]]"})
    EXPECT_EQ(status(kCompletions, fmt::format(R"({{"prompt":{},"max_tokens":2}})", prompt)), 200) << prompt;
  EXPECT_EQ(status(kChat, R"({"messages":[{"role":"user","content":""}],"max_tokens":2})"), 200);
  EXPECT_EQ(status(kMessages, R"({"messages":[{"role":"user","content":[]}],"max_tokens":2})"), 400);
}

// Nobody's template is run, so none can take time or reach out of itself.
TEST_F(CveTest, Cve_2025_61620_62426_Cve_2026_5760_Cve_2024_34359_TemplatesAreText) {
  for (const char* more : {R"("chat_template":"{% for i in range(10**10) %}x{% endfor %}")",
                           R"("chat_template":"{{ ''.__class__.__mro__[1].__subclasses__() }}")",
                           R"("chat_template_kwargs":{"chat_template":"{{ 7*7 }}","tokenize":true,"messages":[]})"}) {
    const auto start = Clock::now();
    const Answer refused = post(port(), "/v1/chat/completions/render", fmt::format("{{{},{}}}", kHi, more));
    EXPECT_EQ(refused.status, 400) << more;
    EXPECT_TRUE(text_of(refused.json().at("error").at("param")).starts_with("chat_template")) << refused.body;
    EXPECT_LT(Clock::now() - start, seconds(10));
  }
  const Answer user =
      post(port(), "/v1/chat/completions/render", R"({"messages":[{"role":"user","content":"{{ 7*7 }}{% raw %}"}]})");
  EXPECT_NE(user.body.find("{{ 7*7 }}{% raw %}"), std::string::npos) << user.body;
}

// A listener that is named in every field: nobody comes.
TEST_F(CveTest, Cve_2025_6242_Cve_2026_24779_NoUrlIsEverFetched) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string url = fmt::format("http://127.0.0.1:{}/x.png", ntohs(address.sin_port));
  const std::string part = R"({{"role":"user","content":[{{"type":"{0}","{0}":{{"url":"{1}"}}}}]}})";
  for (const char* type : {"image_url", "video_url", "audio_url", "input_audio", "file"}) {
    const std::string message = fmt::format(fmt::runtime(part), type, url);
    EXPECT_EQ(status(kChat, fmt::format(R"({{"messages":[{}]}})", message)), 400) << type;
    EXPECT_EQ(status(kMessages, fmt::format(R"({{"max_tokens":2,"messages":[{}]}})", message)), 400) << type;
  }
  EXPECT_EQ(status(kChat, fmt::format(R"({{{},"response_format":{{"type":"json_schema","json_schema":{{"name":"x",
      "schema":{{"$ref":"{}"}}}}}}}})",
                                      kHi, url)),
            have_grammars() ? 400 : 501);
  EXPECT_EQ(status(kChat, fmt::format(R"({{{},"user":"{}","metadata":{{"url":"{}"}}}})", kHi, url, url)), 200);
  pollfd of{.fd = listener, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&of, 1, 300), 0) << "somebody came";
  ::close(listener);
}

TEST_F(CveTest, Cve_2026_22773_Cve_2025_62164_OnlyTextIsRead) {
  const char* const pixel =
      "data:image/"
      "png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABc3UBGAAAAABJRU5ErkJggg==";
  const Answer image = post(
      port(), kChat,
      fmt::format(R"({{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{}"}}}}]}}]}})",
                  pixel));
  EXPECT_EQ(image.status, 400) << image.body;
  for (const char* embeds : {R"("gASVBQAAAAAAAABLAS4=")", R"(["gASVBQ=="])", "{}"}) {
    const Answer answer = post(port(), kCompletions, fmt::format(R"({{"prompt":"x","prompt_embeds":{}}})", embeds));
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(code(answer), "unsupported_parameter");
  }
}

// What one tenant has asked shows another one nothing, not even that it was asked.
TEST_F(CveTest, Cve_2025_46570_25183_CachesOfOtherTenants) {
  std::string prompt;
  for (int i = 0; i < 40; ++i) prompt += fmt::format(" secret{}", i);
  const auto cached = [&](const std::string& salt) {
    json::object body{{"prompt", prompt}, {"max_tokens", 2}};
    if (!salt.empty()) body["cache_salt"] = salt;
    const json::object answer = post(port(), kCompletions, json::serialize(body)).json();
    return answer.at("usage").at("prompt_tokens_details").at("cached_tokens").to_number<int64_t>();
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_GT(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_GT(cached("b"), 0);
}

// Every number at the ends of its type and beyond.
TEST_F(CveTest, Cve_2026_21869_NumbersAtTheirEnds) {
  for (const char* field : {"max_tokens", "n", "best_of", "seed", "top_k", "min_tokens", "logprobs", "prompt_logprobs",
                            "priority", "stream_interval", "temperature", "top_p", "min_p", "presence_penalty",
                            "frequency_penalty", "repetition_penalty", "stop_token_ids", "prompt", "logit_bias"}) {
    for (const char* value : {"-1",
                              "0",
                              "2147483647",
                              "2147483648",
                              "-2147483649",
                              "9223372036854775807",
                              "9223372036854775808",
                              "-9223372036854775808",
                              "18446744073709551616",
                              "1e308",
                              "-1e308",
                              "1e400",
                              "1e-400",
                              "0.5",
                              "\"1\"",
                              "[-1]",
                              "[2147483648]",
                              "[1e308]",
                              "{\"-1\":1}",
                              "{\"99999999999\":1}",
                              "{\"1\":1e308}",
                              "NaN",
                              "Infinity",
                              "-0",
                              "0x10",
                              "01",
                              "+1",
                              "1."}) {
      const std::string prompt = std::string_view(field) == "prompt" ? "" : R"("prompt":"x",)";
      const Answer answer = post(port(), kCompletions,
                                 fmt::format(R"({{{}"timeout":1,"ignore_eos":false,"{}":{}}})", prompt, field, value));
      EXPECT_TRUE(answer.status == 200 || answer.status == 400) << field << " " << value << ": " << answer.body;
      if (answer.status == 400) {
        EXPECT_NE(text_of(answer.json()["error"].at("message")), "") << field << value;
      }
    }
  }
}

TEST_F(CveTest, Cve_2025_52566_TextsLongerThanAnyContext) {
  const std::string text(size_t{6} << 20, 'a');
  const int64_t before = resident_bytes();
  EXPECT_EQ(status(kCompletions, fmt::format(R"({{"prompt":"{}","max_tokens":2}})", text)), 400);
  EXPECT_EQ(status(kChat, fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", text)), 400);
  if (kMemoryIsPlain) {
    EXPECT_LT(resident_bytes() - before, int64_t{400} << 20);
  }
}

// A name is compared and leads to no file; whether one is there is not to be learned.
TEST_F(CveTest, Cve_2024_37032_39720_39722_NamesLeadToNoFile) {
  std::set<std::string> answers;
  for (const std::string name : {"/etc/passwd", "/nonexistent/no", "../../../etc/passwd", "..%2f..%2fetc%2fpasswd"}) {
    Answer answer = post(port(), kCompletions, fmt::format(R"({{"model":"{}","prompt":"x"}})", name));
    EXPECT_EQ(answer.status, 404) << name;
    EXPECT_EQ(answer.body.find("root:"), std::string::npos);
    answer.body.replace(answer.body.find(name), name.size(), "NAME");
    answers.insert(answer.body);
    EXPECT_EQ(get(port(), "/v1/models/" + name).status, 404) << name;
    EXPECT_EQ(get(port(), "/" + name).status, 404) << name;
  }
  EXPECT_EQ(answers.size(), 1u) << "files that are there are told apart from those that are not";
  EXPECT_EQ(status(kCompletions, R"({"model":"tiny\u0000/../x","prompt":"x"})"), 404);
}

// A folder's configs may name code, its own or somebody's: it is neither run nor fetched.
TEST_F(CveTest, Cve_2025_66448_Cve_2026_22807_CodeOfAModelDoesNotRun) {
  ModelCopy model;
  const std::filesystem::path ran = std::filesystem::path(model.path()) / "ran";
  model.write("modeling_tiny.py", fmt::format("open('{}', 'w')\nclass Model: pass\n", ran.string()));
  const std::string names =
      R"({"auto_map": {"AutoConfig": "modeling_tiny.Model", "AutoModelForCausalLM": "someone/else--modeling_tiny.Model",
          "AutoTokenizer": ["modeling_tiny.Model", null]}, "trust_remote_code": true, )";
  for (const char* file : {"config.json", "tokenizer_config.json"})
    model.edit(file, [&](std::string& text) { text.replace(text.find('{'), 1, names); });
  TinyServerOptions options;
  options.model_dir = model.path();
  TinyServer server(std::move(options));
  EXPECT_EQ(server.greedy(kQuestion, 12), expected_);
  EXPECT_FALSE(std::filesystem::exists(ran));
}

// Workers that others talk to by pickled objects or raw pointers: ranks are threads here, and nothing listens but the
// server of HTTP.
TEST(CveProcessTest, Cve_2025_29783_32444_30165_Cve_2026_3059_3060_Cve_2024_42477_42478_42479_NothingElseListens) {
  const ServerProcess server({"--data-parallel-size", "2"});
  std::set<std::string> own;  // "socket:[12345]"
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", server.process()))) {
    std::error_code error;
    own.insert(std::filesystem::read_symlink(entry.path(), error).string());
  }
  std::vector<int> ports;
  for (const char* kind : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", server.process(), kind));
    std::string line;
    std::getline(file, line);  // the names of the columns
    while (std::getline(file, line)) {
      std::istringstream columns(line);
      std::string number, local, remote, state, skipped, inode;
      columns >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) columns >> skipped;
      columns >> inode;
      const bool listens = state == "0A" || std::string_view(kind).starts_with("udp");
      if (listens && own.contains("socket:[" + inode + "]"))
        ports.push_back(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
    }
  }
  EXPECT_EQ(ports, std::vector<int>{server.port()});
}

TEST_F(CveTest, Ghsa_fh2c_86xm_pm2x_NoMultipart) {
  const std::string part = "--x\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n1\r\n";
  std::string body;
  for (int i = 0; i < 1000; ++i) body += part;
  Client client(port());
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; "
                  "boundary=x\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body));
  EXPECT_EQ(client.read_answer().value_or(Answer{}).status, 415);
}

TEST_F(CveTest, BodiesInOtherCodingsAreRefused) {
  for (const char* coding : {"gzip", "deflate", "br", "zstd", "x-gzip", "identity, gzip"}) {
    EXPECT_EQ(post(port(), kCompletions, "{}", fmt::format("Content-Encoding: {}\r\n", coding)).status, 415) << coding;
  }
}

TEST_F(CveTest, JsonThatIsReadInTwoWays) {
  const json::object usage =
      post(port(), kCompletions, R"({"prompt":"a","max_tokens":1,"prompt":"Hello","max_tokens":3,"ignore_eos":true})")
          .json()["usage"]
          .as_object();
  EXPECT_EQ(usage.at("completion_tokens"), 3) << "the last one counts";
  for (const char* body : {R"({"prompt":"\ud800"})", R"({"prompt":"\udc00\ud800"})", "{\"prompt\":\"\xff\"}",
                           "{\"prompt\":\"a\nb\"}", R"({"prompt":"x"}{})", R"({"prompt":"x",})", R"({'prompt':'x'})",
                           R"({"prompt":NaN})", R"({"prompt":"x"/**/})", "\xef\xbb\xbf{\"prompt\":\"x\"}"}) {
    const Answer answer = post(port(), kCompletions, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(code(answer), "invalid_json") << answer.body;
  }
  // Characters that end a line or a string somewhere else come through whole.
  const std::string odd = R"("a\u0000b\u2028c\u2029d\u0085e\ud83d\ude00")";
  const json::object ids =
      post(port(), "/tokenize", fmt::format(R"({{"prompt":{},"add_special_tokens":false}})", odd)).json();
  const Answer back = post(port(), "/detokenize", json::serialize(json::object{{"tokens", ids.at("tokens")}}));
  EXPECT_EQ(back.json()["prompt"], json::parse(odd));
}

// Bodies are nested as deep as they may be, and what is made of them deeper still.
TEST_F(CveTest, DeepNestingEverywhere) {
  for (const int depth : {10, 25, 31, 32, 33, 45, 55, 60, 61, 62, 63, 64, 65, 100, 20'000}) {
    const std::string deep = nested(depth, R"({"items":)", "}");
    const std::string tool = fmt::format(R"({{"name":"f","input_schema":{}}})", deep);
    const std::string body = fmt::format(R"({{{},"tools":[{}]}})", kHi, tool);
    for (const char* path : {"/v1/messages/count_tokens", kMessages}) {
      const Answer answer = post(port(), path, body);
      EXPECT_TRUE(answer.status == (depth > 64 ? 400 : 200) || (depth > 25 && answer.status == 400))
          << path << " " << depth << answer.body;
    }
    const std::string chat = fmt::format(
        R"({{{},"tools":[{{"type":"function","function":{{"name":"f","parameters":{}}}}}],"tool_choice":"required"}})",
        kHi, deep);
    for (const char* path : {kChat, "/v1/chat/completions/render", "/tokenize"}) {
      const int got = status(path, chat);
      EXPECT_TRUE(got == 200 || got == 400 || (!have_grammars() && got == 501)) << path << " " << depth << ": " << got;
    }
    const std::string call = fmt::format(
        R"({{{0},"messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"f","input":{1}}}]}},{{"role":"user","content":"y"}}]}})",
        R"("max_tokens":2)", deep);
    const int got = status(kMessages, call);
    EXPECT_TRUE(got == 200 || got == 400) << depth << ": " << got;
  }
}

// Control tokens that a user writes are text.
TEST_F(CveTest, UsersCannotWriteControlTokens) {
  const auto added = [&](const std::string& content) {
    const json::object body{{"messages", json::array{json::object{{"role", "user"}, {"content", content}}}}};
    const json::object answer = post(port(), "/v1/chat/completions/render", json::serialize(body)).json();
    int count = 0;
    for (const json::value& id : answer.at("prompts").at(0).at("prompt_token_ids").as_array())
      count += server_->model().api.tokenizer->is_added(id.to_number<TokenId>()) ? 1 : 0;
    return count;
  };
  const int plain = added("Hi");
  EXPECT_GT(plain, 0);
  for (const char* text : {"<｜Assistant｜>", "</think>", "<think>", "<｜User｜>", "<｜begin▁of▁sentence｜>",
                           "<｜end▁of▁sentence｜>", "<｜DSML｜function_calls>", "<｜tool▁calls▁begin｜>"})
    EXPECT_EQ(added(text), plain) << text;
}

}  // namespace
}  // namespace lantern::test
