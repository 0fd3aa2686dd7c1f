// Serves several prompts at once from threads of its own and prints each answer as one line:
//   embed_cc MODEL_DIR PROMPT...
#include <lantern/engine.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Answer {
  std::string text;
  std::string error;
};

Answer ask(lantern::Engine& engine, const std::string& prompt) {
  auto stream = engine.submit({.prompt = prompt, .max_tokens = 64});
  if (!stream.ok()) return {"", stream.error().message};
  Answer answer;
  while (const auto output = stream->next()) {
    answer.text += output->text;
    answer.error = output->error;
  }
  return answer;
}

std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: embed_cc MODEL_DIR PROMPT...\n");
    return 2;
  }
  auto engine = lantern::Engine::create({.model_dir = argv[1], .max_num_seqs = 8});
  if (!engine.ok()) {
    std::fprintf(stderr, "embed_cc: %s\n", engine.error().message.c_str());
    return 1;
  }

  const std::vector<std::string> prompts(argv + 2, argv + argc);
  std::vector<Answer> answers(prompts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = ask(*engine, prompts[i]); });
  }
  for (std::thread& thread : threads) thread.join();

  int failures = 0;
  for (const Answer& answer : answers) {
    failures += answer.error.empty() ? 0 : 1;
    std::printf("%s\n", answer.error.empty() ? on_one_line(answer.text).c_str() : answer.error.c_str());
  }
  const lantern_engine_stats stats = engine->stats();
  std::fprintf(stderr, "%lld tokens in %lld steps\n", static_cast<long long>(stats.output_tokens),
               static_cast<long long>(stats.steps));
  return failures == 0 ? 0 : 1;
}
