// The reader of tokenizer.json, as written by the tokenizers package.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/json.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace lantern {
namespace json = boost::json;

namespace {

constexpr size_t kMaxSteps = 64;
constexpr size_t kMaxAddedTokenBytes = 4096;

Error corrupt(std::string message) { return Error(ErrorCode::kCorrupt, std::move(message)); }
Error unsupported(std::string message) { return Error(ErrorCode::kUnsupported, std::move(message)); }

// A part such as "normalizer" is absent, null or an object with a type.
Result<const json::object*> optional_part(const json::object& root, std::string_view name) {
  const json::value* value = root.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || value->is_null()) return nullptr;
  return json_object(*value, fmt::format("\"{}\"", name));
}

Result<std::string_view> type_of(const json::object& object, std::string_view where) {
  ASSIGN_OR_RETURN(const json::value* type, json_member(object, "type", where));
  return json_string(*type, fmt::format("\"type\" of {}", where));
}

Status check_normalizer(const json::object& root) {
  ASSIGN_OR_RETURN(const json::object* normalizer, optional_part(root, "normalizer"));
  if (normalizer == nullptr) return {};
  ASSIGN_OR_RETURN(const std::string_view type, type_of(*normalizer, "the normalizer"));
  if (type != "Sequence")
    return unsupported(fmt::format("the normalizer {} is not supported; only an empty one is", type));
  ASSIGN_OR_RETURN(const json::value* list, json_member(*normalizer, "normalizers", "the normalizer"));
  ASSIGN_OR_RETURN(const json::array* steps, json_array(*list, "\"normalizers\""));
  for (const json::value& step : *steps) {
    ASSIGN_OR_RETURN(const json::object* object, json_object(step, "a step of the normalizer"));
    ASSIGN_OR_RETURN(const std::string_view step_type, type_of(*object, "a step of the normalizer"));
    return unsupported(fmt::format("the normalizer {} is not supported; only an empty one is", step_type));
  }
  return {};
}

Result<SplitBehavior> parse_behavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return corrupt(fmt::format("a Split pre-tokenizer has the unknown behavior \"{}\"", name));
}

Status read_split(const json::object& step, PreTokenizer& pre_tokenizer) {
  constexpr std::string_view kWhere = "a Split pre-tokenizer";
  ASSIGN_OR_RETURN(const json::value* behavior_value, json_member(step, "behavior", kWhere));
  ASSIGN_OR_RETURN(const std::string_view behavior_name, json_string(*behavior_value, "\"behavior\" of a Split"));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, parse_behavior(behavior_name));
  ASSIGN_OR_RETURN(const bool invert, json_bool_or(step, "invert", false, kWhere));
  ASSIGN_OR_RETURN(const json::value* pattern_value, json_member(step, "pattern", kWhere));
  ASSIGN_OR_RETURN(const json::object* pattern, json_object(*pattern_value, "\"pattern\" of a Split"));
  if (const json::value* regex = pattern->if_contains("Regex")) {
    ASSIGN_OR_RETURN(const std::string_view text, json_string(*regex, "\"Regex\" of a Split"));
    ASSIGN_OR_RETURN(auto matcher, make_split_pattern(text));
    pre_tokenizer.add_split(std::move(matcher), behavior, invert);
    return {};
  }
  if (const json::value* literal = pattern->if_contains("String")) {
    ASSIGN_OR_RETURN(const std::string_view text, json_string(*literal, "\"String\" of a Split"));
    pre_tokenizer.add_split(make_literal_pattern(std::string(text)), behavior, invert);
    return {};
  }
  return corrupt("\"pattern\" of a Split pre-tokenizer has neither \"Regex\" nor \"String\"");
}

Status read_pre_tokenizer(const json::object& root, PreTokenizer& pre_tokenizer) {
  ASSIGN_OR_RETURN(const json::object* outer, optional_part(root, "pre_tokenizer"));
  if (outer == nullptr) return unsupported("there is no pre_tokenizer; only byte-level ones are supported");
  std::vector<const json::object*> steps = {outer};
  ASSIGN_OR_RETURN(const std::string_view outer_type, type_of(*outer, "the pre_tokenizer"));
  if (outer_type == "Sequence") {
    ASSIGN_OR_RETURN(const json::value* list_value, json_member(*outer, "pretokenizers", "the pre_tokenizer"));
    ASSIGN_OR_RETURN(const json::array* list, json_array(*list_value, "\"pretokenizers\""));
    steps.clear();
    for (const json::value& value : *list) {
      ASSIGN_OR_RETURN(const json::object* step, json_object(value, "a step of the pre_tokenizer"));
      steps.push_back(step);
    }
  }
  if (steps.empty() || steps.size() > kMaxSteps) {
    return unsupported(fmt::format("the pre_tokenizer has {} steps; 1 to {} are supported", steps.size(), kMaxSteps));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const json::object& step = *steps[i];
    ASSIGN_OR_RETURN(const std::string_view type, type_of(step, "a step of the pre_tokenizer"));
    const bool last = i + 1 == steps.size();
    if ((type == "ByteLevel") != last) {
      return unsupported(fmt::format("the pre_tokenizer must end in its only ByteLevel step, but step {} of {} is {}",
                                     i + 1, steps.size(), type));
    }
    if (type == "Split") {
      RETURN_IF_ERROR(read_split(step, pre_tokenizer));
    } else if (type == "Digits") {
      ASSIGN_OR_RETURN(const bool individual, json_bool_or(step, "individual_digits", false, "a Digits pre-tokenizer"));
      pre_tokenizer.add_digits(individual);
    } else if (type == "ByteLevel") {
      ASSIGN_OR_RETURN(const bool add_prefix_space, json_bool_or(step, "add_prefix_space", true, "ByteLevel"));
      ASSIGN_OR_RETURN(const bool use_regex, json_bool_or(step, "use_regex", true, "ByteLevel"));
      pre_tokenizer.set_byte_level(add_prefix_space, use_regex);
    } else {
      return unsupported(fmt::format("the pre-tokenizer {} is not supported; Split, Digits and ByteLevel are", type));
    }
  }
  return {};
}

Status check_decoder(const json::object& root) {
  ASSIGN_OR_RETURN(const json::object* decoder, optional_part(root, "decoder"));
  if (decoder == nullptr) return unsupported("there is no decoder; only ByteLevel is supported");
  ASSIGN_OR_RETURN(const std::string_view type, type_of(*decoder, "the decoder"));
  if (type != "ByteLevel") return unsupported(fmt::format("the decoder {} is not supported; only ByteLevel is", type));
  return {};
}

Result<TokenId> token_id(const json::value& value, std::string_view token) {
  ASSIGN_OR_RETURN(const int64_t id, json_integer(value, fmt::format("the id of token \"{}\"", token)));
  if (id < 0 || id > kMaxTokenId) {
    return corrupt(fmt::format("the id {} of token \"{}\" is outside of [0, {}]", id, token, kMaxTokenId));
  }
  return static_cast<TokenId>(id);
}

using Vocab = std::unordered_map<std::string_view, TokenId>;

struct VocabReader {
  const json::object& vocab_json;
  Vocab vocab;
  std::vector<std::string_view> token_of;  // by id

  Status read() {
    vocab.reserve(vocab_json.size());
    for (const auto& member : vocab_json) {
      const std::string_view token(member.key().data(), member.key().size());
      ASSIGN_OR_RETURN(const TokenId id, token_id(member.value(), token));
      RETURN_IF_ERROR(put(token, id));
      vocab.emplace(token, id);
    }
    return {};
  }

  Status put(std::string_view token, TokenId id) {
    const auto index = static_cast<size_t>(id);
    if (token_of.size() <= index) token_of.resize(index + 1);
    // An empty view with a null pointer marks a hole; the empty token has a pointer.
    if (token_of[index].data() != nullptr) {
      return corrupt(fmt::format("tokens \"{}\" and \"{}\" have the same id {}", token_of[index], token, id));
    }
    token_of[index] = token;
    return {};
  }
};

Status check_model_options(const json::object& model) {
  ASSIGN_OR_RETURN(const std::string_view type, json_string_or(model, "type", "BPE", "the model"));
  if (type != "BPE") return unsupported(fmt::format("the model type {} is not supported; only BPE is", type));
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string_view text, json_string_or(model, name, "", "the model"));
    if (!text.empty())
      return unsupported(fmt::format("\"{}\" of the model is \"{}\"; only none is supported", name, text));
  }
  const json::value* dropout = model.if_contains("dropout");
  if (dropout != nullptr && !dropout->is_null() && !(dropout->is_number() && dropout->to_number<double>() == 0.0)) {
    return unsupported("\"dropout\" of the model is set, which makes ids random; only none is supported");
  }
  return {};
}

Status read_merges(const json::object& model, const Vocab& vocab, BpeModel& bpe) {
  ASSIGN_OR_RETURN(const json::value* merges_value, json_member(model, "merges", "the model"));
  ASSIGN_OR_RETURN(const json::array* merges, json_array(*merges_value, "\"merges\""));
  std::string joined;
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const json::value& merge = (*merges)[rank];
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view text(merge.get_string().data(), merge.get_string().size());
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return corrupt(fmt::format("merge {} is \"{}\", not two tokens with a space between", rank, text));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.get_array().size() == 2) {
      ASSIGN_OR_RETURN(left, json_string(merge.get_array()[0], fmt::format("merge {}", rank)));
      ASSIGN_OR_RETURN(right, json_string(merge.get_array()[1], fmt::format("merge {}", rank)));
    } else {
      return corrupt(fmt::format("merge {} must be a string or an array of two strings", rank));
    }
    joined.assign(left);
    joined.append(right);
    TokenId ids[3] = {};
    const std::string_view names[3] = {left, right, joined};
    for (int i = 0; i < 3; ++i) {
      const auto known = vocab.find(names[i]);
      if (known == vocab.end()) {
        return corrupt(fmt::format("merge {} (\"{}\" and \"{}\") needs token \"{}\", which is not in the vocabulary",
                                   rank, left, right, names[i]));
      }
      ids[i] = known->second;
    }
    bpe.set_merge(ids[0], ids[1], static_cast<uint32_t>(rank), ids[2]);
  }
  return {};
}

Status read_added_tokens(const json::object& root, VocabReader& reader, std::vector<AddedToken>& added) {
  const json::value* list_value = root.if_contains("added_tokens");
  if (list_value == nullptr || list_value->is_null()) return {};
  ASSIGN_OR_RETURN(const json::array* list, json_array(*list_value, "\"added_tokens\""));
  std::unordered_map<std::string_view, TokenId> seen;
  for (const json::value& value : *list) {
    ASSIGN_OR_RETURN(const json::object* object, json_object(value, "an added token"));
    ASSIGN_OR_RETURN(const json::value* content_value, json_member(*object, "content", "an added token"));
    ASSIGN_OR_RETURN(const std::string_view content, json_string(*content_value, "\"content\" of an added token"));
    ASSIGN_OR_RETURN(const json::value* id_value, json_member(*object, "id", "an added token"));
    AddedToken token;
    ASSIGN_OR_RETURN(token.id, token_id(*id_value, content));
    if (content.empty() || content.size() > kMaxAddedTokenBytes) {
      return corrupt(fmt::format("added token {} has {} bytes; 1 to {} are supported", token.id, content.size(),
                                 kMaxAddedTokenBytes));
    }
    const std::string where = fmt::format("added token \"{}\"", content);
    ASSIGN_OR_RETURN(token.special, json_bool_or(*object, "special", false, where));
    ASSIGN_OR_RETURN(token.single_word, json_bool_or(*object, "single_word", false, where));
    ASSIGN_OR_RETURN(token.lstrip, json_bool_or(*object, "lstrip", false, where));
    ASSIGN_OR_RETURN(token.rstrip, json_bool_or(*object, "rstrip", false, where));
    ASSIGN_OR_RETURN(token.normalized, json_bool_or(*object, "normalized", !token.special, where));
    if (!seen.emplace(content, token.id).second) return corrupt(where + " is listed twice");
    if (const auto known = reader.vocab.find(content); known != reader.vocab.end()) {
      if (known->second != token.id) {
        return corrupt(fmt::format("{} has the id {} here and {} in the vocabulary", where, token.id, known->second));
      }
    } else {
      RETURN_IF_ERROR(reader.put(content, token.id));
    }
    token.content = content;
    added.push_back(std::move(token));
  }
  return {};
}

// Ids of a TemplateProcessing's "single" list, those before and those after the text.
Status read_template(const json::object& processor, size_t num_ids, Tokenizer::Impl& impl) {
  constexpr std::string_view kWhere = "the TemplateProcessing post_processor";
  ASSIGN_OR_RETURN(const json::value* single_value, json_member(processor, "single", kWhere));
  ASSIGN_OR_RETURN(const json::array* single, json_array(*single_value, "\"single\""));
  ASSIGN_OR_RETURN(const json::value* tokens_value, json_member(processor, "special_tokens", kWhere));
  ASSIGN_OR_RETURN(const json::object* tokens, json_object(*tokens_value, "\"special_tokens\""));
  bool after = false;
  for (const json::value& item_value : *single) {
    ASSIGN_OR_RETURN(const json::object* item, json_object(item_value, "an item of \"single\""));
    if (item->if_contains("Sequence") != nullptr) {
      if (after) return unsupported("the post_processor repeats the text, which is not supported");
      after = true;
      continue;
    }
    ASSIGN_OR_RETURN(const json::value* special_value, json_member(*item, "SpecialToken", "an item of \"single\""));
    ASSIGN_OR_RETURN(const json::object* special, json_object(*special_value, "\"SpecialToken\""));
    ASSIGN_OR_RETURN(const json::value* name_value, json_member(*special, "id", "\"SpecialToken\""));
    ASSIGN_OR_RETURN(const std::string_view name, json_string(*name_value, "\"id\" of a SpecialToken"));
    ASSIGN_OR_RETURN(const json::value* entry_value, json_member(*tokens, name, "\"special_tokens\""));
    ASSIGN_OR_RETURN(const json::object* entry, json_object(*entry_value, "an entry of \"special_tokens\""));
    ASSIGN_OR_RETURN(const json::value* ids_value, json_member(*entry, "ids", "an entry of \"special_tokens\""));
    ASSIGN_OR_RETURN(const json::array* ids, json_array(*ids_value, "\"ids\" of a special token"));
    for (const json::value& value : *ids) {
      ASSIGN_OR_RETURN(const TokenId id, token_id(value, name));
      if (static_cast<size_t>(id) >= num_ids) {
        return corrupt(fmt::format("the post_processor adds id {}, which no token has", id));
      }
      (after ? impl.suffix : impl.prefix).push_back(id);
    }
  }
  if (!after) return corrupt("\"single\" of the post_processor leaves the text out");
  return {};
}

Status read_post_processor(const json::object& root, size_t num_ids, Tokenizer::Impl& impl) {
  ASSIGN_OR_RETURN(const json::object* outer, optional_part(root, "post_processor"));
  if (outer == nullptr) return {};
  std::vector<const json::object*> steps = {outer};
  ASSIGN_OR_RETURN(const std::string_view outer_type, type_of(*outer, "the post_processor"));
  if (outer_type == "Sequence") {
    ASSIGN_OR_RETURN(const json::value* list_value, json_member(*outer, "processors", "the post_processor"));
    ASSIGN_OR_RETURN(const json::array* list, json_array(*list_value, "\"processors\""));
    steps.clear();
    for (const json::value& value : *list) {
      ASSIGN_OR_RETURN(const json::object* step, json_object(value, "a step of the post_processor"));
      steps.push_back(step);
    }
  }
  size_t templates = 0;
  for (const json::object* step : steps) {
    ASSIGN_OR_RETURN(const std::string_view type, type_of(*step, "a step of the post_processor"));
    if (type == "ByteLevel") continue;  // moves offsets only
    if (type != "TemplateProcessing") {
      return unsupported(
          fmt::format("the post_processor {} is not supported; TemplateProcessing and ByteLevel are", type));
    }
    if (++templates > 1) return unsupported("the post_processor has two TemplateProcessing steps; one is supported");
    RETURN_IF_ERROR(read_template(*step, num_ids, impl));
  }
  return {};
}

}  // namespace

Status read_tokenizer_json(std::string_view text, Tokenizer::Impl& impl) {
  ASSIGN_OR_RETURN(const json::value document, parse_json(text));
  ASSIGN_OR_RETURN(const json::object* root, json_object(document, "the file"));
  ASSIGN_OR_RETURN(const json::value* model_value, json_member(*root, "model", "the file"));
  ASSIGN_OR_RETURN(const json::object* model, json_object(*model_value, "\"model\""));
  RETURN_IF_ERROR(check_model_options(*model));
  RETURN_IF_ERROR(check_normalizer(*root));
  RETURN_IF_ERROR(check_decoder(*root));
  RETURN_IF_ERROR(read_pre_tokenizer(*root, impl.pre_tokenizer));

  ASSIGN_OR_RETURN(const json::value* vocab_value, json_member(*model, "vocab", "the model"));
  ASSIGN_OR_RETURN(const json::object* vocab_json, json_object(*vocab_value, "\"vocab\""));
  VocabReader reader{*vocab_json, {}, {}};
  RETURN_IF_ERROR(reader.read());
  RETURN_IF_ERROR(read_added_tokens(*root, reader, impl.added));

  const size_t num_ids = reader.token_of.size();
  impl.model = std::make_unique<BpeModel>(num_ids);
  impl.bytes.resize(num_ids);
  for (size_t id = 0; id < num_ids; ++id) {
    const std::string_view token = reader.token_of[id];
    std::string bytes;
    // A token outside of the byte alphabet is never the result of merges; it decodes to its own text.
    if (!bytes_of_alphabet(token, &bytes)) {
      impl.bytes[id] = token;
      continue;
    }
    impl.bytes[id] = bytes;
    const bool in_vocab = token.data() != nullptr && reader.vocab.count(token) != 0;
    if (in_vocab && !bytes.empty()) impl.model->set_token(static_cast<TokenId>(id), std::move(bytes));
  }
  if (const int byte = impl.model->missing_byte(); byte >= 0) {
    return corrupt(fmt::format("the vocabulary has no token for byte 0x{:02x}, so not all text can be encoded", byte));
  }
  ASSIGN_OR_RETURN(const bool ignore_merges, json_bool_or(*model, "ignore_merges", false, "the model"));
  impl.model->set_ignore_merges(ignore_merges);
  RETURN_IF_ERROR(read_merges(*model, reader.vocab, *impl.model));
  impl.model->finish();
  return read_post_processor(*root, num_ids, impl);
}

}  // namespace lantern
