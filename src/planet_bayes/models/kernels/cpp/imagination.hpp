// Imagination: P members × N candidates rolled through the horizon (Algorithm 3, lines 6-10).
//
// One step of a row, for the weights of its member:
//
//     x    = f([s, a] W_i + b_i)
//     r, u = σ([x, h] W_g + b_g)
//     c    = tanh([r·h, x] W_c + b_c)
//     h    = c + u (h - c)
//     m, v = f(h W_h + b_h) W_o + b_o
//     s    = m + (softplus(v) + σ_min) ε        or m, without noise
//     reward = head([h, s])
//
// The parts of a row lie side by side, so that the input of every product is a slice:
//
//     [ r·h | x | h | s | a ]
//
// A block of rows goes through the whole horizon before the next one begins: it stays in cache. The
// states [h, s] are written only where they are asked for.

#pragma once

#include "dense.hpp"

namespace {

constexpr int BLOCK = 96;  // most rows that go through the horizon together

struct Member {
  Layer input, reset, update, candidate, hidden;
  Layer mean, mean_and_std;  // without noise, and with it
};

struct Sizes {  // as in native.py
  int32_t members, action, deter, stoch, hidden, head_layers, head_units, activation;
  float min_std, reward_scale;
};

struct Model {
  Sizes sizes;
  std::vector<Member> members;
  std::vector<Layer> head;  // all layers except the last
  std::vector<float> last;  // weights of the last, which has one output
  float last_bias;
  std::vector<float> unsound;  // per member: 0, or NaN if a weight is not finite
};

struct Work {
  int batch, candidates, horizon, noise_columns, threads;
  const float *deter, *stoch, *actions, *noise;
  float *rewards, *features;
};

// Rolls the candidates first … first + count of problem `problem` through the horizon.
void roll(const Model& model, const Work& work, int member, int problem, int first, int count,
          std::vector<float>& memory) {
  const Sizes& z = model.sizes;
  const Member& m = model.members[member];
  const int D = z.deter, S = z.stoch, X = z.hidden, A = z.action;
  const int start = member * work.batch + problem;
  // Distances between rows: not a power of two, or all rows compete for the same lines of a cache.
  const int row = (D + X + D + S + A + 15) / 16 * 16 + 16;
  const int wide = (std::max({X, D, 2 * S, int(z.head_units)}) + 15) / 16 * 16 + 16;
  memory.resize(std::size_t(count) * (row + 4 * std::size_t(wide)) + count);
  float *rh = memory.data(), *x = rh + D, *h = x + X, *s = h + D, *a = s + S;
  float* u = rh + std::size_t(count) * row;
  float *one = u + std::size_t(count) * wide, *two = one + std::size_t(count) * wide;
  float *raw = two + std::size_t(count) * wide, *broken = raw + std::size_t(count) * wide;
  const Cell cell{h, u, row, wide};

  const float* deter = work.deter + std::size_t(start) * D;
  const float* stoch = work.stoch + std::size_t(start) * S;
  const float unsound = model.unsound[member] + not_finite(deter, D) + not_finite(stoch, S);
  for (int i = 0; i < count; ++i) {
    std::copy(deter, deter + D, h + std::size_t(i) * row);
    std::copy(stoch, stoch + S, s + std::size_t(i) * row);
    broken[i] = unsound;
  }
  for (int t = 0; t < work.horizon; ++t) {
    for (int i = 0; i < count; ++i) {
      const std::size_t candidate = std::size_t(problem) * work.candidates + first + i;
      const float* action = work.actions + (candidate * work.horizon + t) * A;
      each([](vec value) { return value; }, A, a + std::size_t(i) * row, action);
      broken[i] += not_finite(action, A);
    }
    activated(z.activation, m.input, s, row, count, x, row);
    dense<Then::times_h>(m.reset, x, row, count, rh, row, cell);
    dense<Then::gate>(m.update, x, row, count, u, wide, cell);
    dense<Then::new_h>(m.candidate, rh, row, count, h, row, cell);
    activated(z.activation, m.hidden, h, row, count, one, wide);
    if (work.noise == nullptr) {
      dense<Then::nothing>(m.mean, one, wide, count, s, row);
    } else {
      dense<Then::nothing>(m.mean_and_std, one, wide, count, raw, wide);
      const std::size_t place =
          (std::size_t(t) * z.members * work.batch + start) * work.noise_columns;
      for (int i = 0; i < count; ++i) {
        const std::size_t column = work.noise_columns == 1 ? 0 : first + i;
        const float* noise = work.noise + (place + column) * S;
        broken[i] += not_finite(noise, S);
        const float *mean = raw + std::size_t(i) * wide, *std = mean + S;
        each([&](vec m, vec v, vec e) { return m + (softplus(v) + z.min_std) * e; }, S,
             s + std::size_t(i) * row, mean, std, noise);
      }
    }
    const float* in = h;
    int in_row = row;
    float *out = one, *other = two;
    for (const Layer& layer : model.head) {
      activated(z.activation, layer, in, in_row, count, out, wide);
      in = out;
      in_row = wide;
      std::swap(out, other);
    }
    for (int i = 0; i < count; ++i) {
      const float* values = in + std::size_t(i) * in_row;
      const int inputs = int(model.last.size()), whole = inputs / LANES * LANES;
      vec sums{};
      for (int j = 0; j < whole; j += LANES) sums += load(values + j) * load(&model.last[j]);
      float reward = model.last_bias;
      for (int j = 0; j < LANES; ++j) reward += sums[j];
      for (int j = whole; j < inputs; ++j) reward += values[j] * model.last[j];
      const std::size_t candidate = std::size_t(problem) * work.candidates + first + i;
      work.rewards[(candidate * z.members + member) * work.horizon + t] =
          reward * z.reward_scale + broken[i];
    }
    if (work.features == nullptr) continue;
    const std::size_t place = std::size_t(t) * z.members * work.batch + start;
    float* to = work.features + (place * work.candidates + first) * (D + S);
    for (int i = 0; i < count; ++i, to += D + S) {
      const vec lost = all(broken[i]);
      each([&](vec value) { return value + lost; }, D + S, to, h + std::size_t(i) * row);
    }
  }
}

void imagine(const Model& model, const Work& work) {
  const int others = model.sizes.members * work.batch;
  if (others == 0 || work.candidates == 0) return;
  int size = block_rows(work.candidates, BLOCK, others, work.threads);
  size = (size + 5) / 6 * 6;  // whole tiles
  const int blocks = (work.candidates + size - 1) / size;
  in_parallel(others * blocks, work.threads, [&](int job, std::vector<float>& memory) {
    // All blocks of a member in turn: its weights are in cache.
    const int member = job / (work.batch * blocks), rest = job % (work.batch * blocks);
    const int problem = rest / blocks, first = rest % blocks * size;
    const int count = std::min(size, work.candidates - first);
    roll(model, work, member, problem, first, count, memory);
  });
}

Model packed(const Sizes& z, const float* const* layers, const float* const* head) {
  const int D = z.deter, S = z.stoch, X = z.hidden, A = z.action;
  Model model{z, {}, {}, {}, 0.f, {}};
  float unsound_head = 0.f;
  int inputs = D + S;
  for (int layer = 0; layer < z.head_layers; ++layer) {  // weights [out, in]
    const float *weight = head[2 * layer], *bias = head[2 * layer + 1];
    model.head.emplace_back(weight, 1, inputs, bias, inputs, z.head_units);
    unsound_head += not_finite(weight, std::size_t(inputs) * z.head_units);
    unsound_head += not_finite(bias, z.head_units);
    inputs = z.head_units;
  }
  const float *last = head[2 * z.head_layers], *last_bias = head[2 * z.head_layers + 1];
  model.last.assign(last, last + inputs);
  model.last_bias = *last_bias;
  unsound_head += not_finite(last, inputs) + not_finite(last_bias, 1);
  unsound_head += not_finite(&z.reward_scale, 1);

  const int ins[] = {S + A, X + D, X + D, D, X}, outs[] = {X, 2 * D, D, X, 2 * S};
  for (int member = 0; member < z.members; ++member) {
    const float *w[5], *b[5];
    float unsound = unsound_head;
    for (int i = 0; i < 5; ++i) {
      w[i] = layers[2 * i] + std::size_t(member) * ins[i] * outs[i];
      b[i] = layers[2 * i + 1] + std::size_t(member) * outs[i];
      unsound += not_finite(w[i], std::size_t(ins[i]) * outs[i]) + not_finite(b[i], outs[i]);
    }
    // The candidate's weights are for [x, r·h]; the row has [r·h, x].
    std::vector<float> swapped(w[2] + std::size_t(X) * D, w[2] + std::size_t(X + D) * D);
    swapped.insert(swapped.end(), w[2], w[2] + std::size_t(X) * D);
    model.members.push_back({
        Layer(w[0], X, 1, b[0], S + A, X),
        Layer(w[1], 2 * D, 1, b[1], X + D, D),
        Layer(w[1] + D, 2 * D, 1, b[1] + D, X + D, D),
        Layer(swapped.data(), D, 1, b[2], X + D, D),
        Layer(w[3], X, 1, b[3], D, X),
        Layer(w[4], 2 * S, 1, b[4], X, S),
        Layer(w[4], 2 * S, 1, b[4], X, 2 * S),
    });
    model.unsound.push_back(unsound);
  }
  return model;
}

}  // namespace
