#include "solver/model/io/models.h"

#include "solver/model/io/catalogue.h"
#include "solver/model/io/read.h"

#include <string>
#include <utility>

namespace tapas::solver {

namespace io {

namespace {

/// A number that may be left out when `value` has one already.
void number(json::ObjectReader& in, std::string_view key, std::uint32_t& value, std::int64_t min,
            std::int64_t max) {
  value = value > 0 ? u32_or(in, key, value, min, max) : u32(in, key, min, max);
}

void optional(json::ObjectReader& in, std::string_view key, std::uint32_t& value,
              std::int64_t max) {
  value = u32_or(in, key, value, 0, max);
}

void flag(json::ObjectReader& in, std::string_view key, bool& value) {
  value = in.boolean_or(key, value);
}

void read_experts(json::ObjectReader& in, Experts& experts) {
  if (!in.has("experts")) {
    return;
  }
  json::ObjectReader part(in.object("experts"), in.child("experts"));
  number(part, "count", experts.count, 1, 1 << 16);
  number(part, "per_token", experts.per_token, 1, 1 << 16);
  number(part, "ffn_size", experts.ffn_size, 1, 1 << 23);
  optional(part, "shared_ffn_size", experts.shared_ffn_size, 1 << 23);
  optional(part, "dense_layers", experts.dense_layers, 10'000);
  if (const auto done = part.finish(); !done) {
    in.absorb(done.error());
  }
}

void read_latent(json::ObjectReader& in, LatentAttention& latent) {
  if (!in.has("latent_attention")) {
    return;
  }
  json::ObjectReader part(in.object("latent_attention"), in.child("latent_attention"));
  optional(part, "query_rank", latent.query_rank, 1 << 20);
  number(part, "kv_rank", latent.kv_rank, 1, 1 << 20);
  optional(part, "rotary_size", latent.rotary_size, 1 << 16);
  if (const auto done = part.finish(); !done) {
    in.absorb(done.error());
  }
}

/// Keys of `in` over what `shape` says already.
void read_shape(json::ObjectReader& in, DecoderShape& shape) {
  shape.name = shape.name.empty() ? in.string("name") : in.string_or("name", shape.name);
  number(in, "layers", shape.layers, 1, 10'000);
  number(in, "hidden_size", shape.hidden_size, 1, 1 << 20);
  number(in, "heads", shape.heads, 1, 1 << 16);
  number(in, "sequence_length", shape.sequence_length, 1, 1 << 24);
  number(in, "vocabulary", shape.vocabulary, 1, 1 << 24);
  optional(in, "ffn_size", shape.ffn_size, 1 << 23);
  optional(in, "kv_heads", shape.kv_heads, 1 << 16);
  optional(in, "head_size", shape.head_size, 1 << 16);
  flag(in, "gated_ffn", shape.gated_ffn);
  flag(in, "rms_norm", shape.rms_norm);
  flag(in, "rotary", shape.rotary);
  flag(in, "biases", shape.biases);
  flag(in, "dropout", shape.dropout);
  flag(in, "tied_head", shape.tied_head);
  if (in.has("attention")) {
    const std::string word = in.word("attention", {"flash", "stored", "recomputed"});
    if (const auto scores = attention_scores_from(word)) {
      shape.scores = *scores;
    }
  }
  read_experts(in, shape.experts);
  read_latent(in, shape.latent);
}

}  // namespace

Result<CatalogueModel> read_model(const json::Value& value, const std::string& where) {
  json::ObjectReader in(value, where);
  in.require_schema("tapas.model/1");
  CatalogueModel model;
  model.source = in.string_or("source", "");
  read_shape(in, model.shape);
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  if (const auto valid = validate(model.shape); !valid) {
    return fail_in(where, valid.error());
  }
  return model;
}

Result<Graph> read_named_model(const json::Value& value, const std::string& where,
                               const ModelDefaults& defaults) {
  json::ObjectReader in(value, where);
  const std::string name = in.string("model");
  DecoderShape shape;
  if (in.ok() && name != "gpt") {  // "gpt" is GPT-3's kind of decoder, all numbers given
    auto known = catalogue_model(name);
    if (!known) {
      return fail_in(in.child("model"), known.error());
    }
    shape = std::move(known->shape);
  }
  read_shape(in, shape);
  shape.micro_batch_size = defaults.micro_batch_size;
  shape.bytes_per_element = defaults.bytes_per_element;
  if (const auto done = in.finish(); !done) {
    return tl::unexpected<Error>(done.error());
  }
  return build_decoder(shape);
}

}  // namespace io

Result<CatalogueModel> catalogue_model(const std::string& name) {
  const auto path = catalogue_file("models", name);
  if (!path) {
    return tl::unexpected<Error>(path.error());
  }
  return load_model(*path);
}

Result<CatalogueModel> load_model(const std::string& path) {
  const auto value = json::parse_file(path);
  if (!value) {
    return tl::unexpected<Error>(value.error());
  }
  return io::read_model(*value, path);
}

json::Value model_to_json(const CatalogueModel& model) {
  const DecoderShape& shape = model.shape;
  json::Value out = {{"schema", "tapas.model/1"},        {"name", shape.name},
                     {"source", model.source},           {"layers", shape.layers},
                     {"hidden_size", shape.hidden_size}, {"heads", shape.heads},
                     {"kv_heads", shape.kv_heads},       {"head_size", shape.head_size},
                     {"ffn_size", shape.ffn_size},       {"sequence_length", shape.sequence_length},
                     {"vocabulary", shape.vocabulary},   {"gated_ffn", shape.gated_ffn},
                     {"rms_norm", shape.rms_norm},       {"rotary", shape.rotary},
                     {"biases", shape.biases},           {"dropout", shape.dropout},
                     {"tied_head", shape.tied_head},     {"attention", to_string(shape.scores)}};
  if (const Experts& experts = shape.experts; experts.count > 0) {
    out["experts"] = {{"count", experts.count},
                      {"per_token", experts.per_token},
                      {"ffn_size", experts.ffn_size},
                      {"shared_ffn_size", experts.shared_ffn_size},
                      {"dense_layers", experts.dense_layers}};
  }
  if (const LatentAttention& latent = shape.latent; latent.kv_rank > 0) {
    out["latent_attention"] = {{"query_rank", latent.query_rank},
                               {"kv_rank", latent.kv_rank},
                               {"rotary_size", latent.rotary_size}};
  }
  return out;
}

}  // namespace tapas::solver
