// The recurrence of learning, and its gradient: `filter_sequence` of sequence.py, where the
// equations are. Rows are sequences of a batch; a block of them goes through all steps with one
// member's weights.
//
// Arrays are [E, T, B, …] by name; those with a step more, [E, T + 1, B, …], hold the states before
// the first step at t = 0. The gradients of weights are products over all steps, left to the
// caller.

#pragma once

#include <utility>

#include "dense.hpp"

namespace {

struct FilterSizes {  // as in native.py
  int32_t members, steps, batch, action, deter, stoch, hidden, activation;
  float min_std;
};

// Weights [E, in, out] and biases [E, out]; `hidden` has no bias of its own.
struct FilterWeights {
  const float *input, *input_bias, *gates, *gates_bias, *candidate, *candidate_bias, *hidden, *out,
      *out_bias;
};

struct FilterArrays {
  const float *part, *action, *noise;  // X, A, S
  float *sa, *xh;                      // S + A, X + D; T + 1 steps
  float *xrh, *gates, *proposed;       // X + D, 2 D, D
  float *values, *mean, *std;          // X, S, S
};

struct FilterGradients {
  const float *deter, *stoch, *mean, *std;    // of the results
  float *at_input, *at_gates, *at_candidate;  // of the products' outputs: X, 2 D, D
  float *at_hidden, *at_out;                  // X, 2 S
};

constexpr int SEQUENCES = 60;  // most rows of a block

void activate(int activation, float* values, int count) {
  if (activation == 0) {
    each([](vec z) { return finish<Then::relu>(z, {}, 0, 0, LANES); }, count, values, values);
  } else {
    each([](vec z) { return finish<Then::elu>(z, {}, 0, 0, LANES); }, count, values, values);
  }
}

struct ForwardLayers {
  Layer input, gates, candidate, hidden, mean, std;

  ForwardLayers(const FilterSizes& z, const FilterWeights& w, int e, const float* zeros)
      : input(w.input + std::size_t(e) * (z.stoch + z.action) * z.hidden, z.hidden, 1,
              w.input_bias + std::size_t(e) * z.hidden, z.stoch + z.action, z.hidden),
        gates(w.gates + std::size_t(e) * (z.hidden + z.deter) * 2 * z.deter, 2 * z.deter, 1,
              w.gates_bias + std::size_t(e) * 2 * z.deter, z.hidden + z.deter, 2 * z.deter),
        candidate(w.candidate + std::size_t(e) * (z.hidden + z.deter) * z.deter, z.deter, 1,
                  w.candidate_bias + std::size_t(e) * z.deter, z.hidden + z.deter, z.deter),
        hidden(w.hidden + std::size_t(e) * z.deter * z.hidden, z.hidden, 1, zeros, z.deter,
               z.hidden),
        mean(w.out + std::size_t(e) * z.hidden * 2 * z.stoch, 2 * z.stoch, 1,
             w.out_bias + std::size_t(e) * 2 * z.stoch, z.hidden, z.stoch),
        std(w.out + std::size_t(e) * z.hidden * 2 * z.stoch + z.stoch, 2 * z.stoch, 1,
            w.out_bias + std::size_t(e) * 2 * z.stoch + z.stoch, z.hidden, z.stoch) {}
};

void filter_rows(const FilterSizes& z, const ForwardLayers& layers, const FilterArrays& q, int e,
                 int first, int count) {
  const int D = z.deter, S = z.stoch, X = z.hidden, A = z.action, XD = X + D, SA = S + A;
  for (int t = 0; t < z.steps; ++t) {
    const std::size_t at = (std::size_t(e) * z.steps + t) * z.batch + first;
    const std::size_t before = (std::size_t(e) * (z.steps + 1) + t) * z.batch + first;
    float *sa = q.sa + before * SA, *xh = q.xh + before * XD;
    float *next_s = sa + std::size_t(z.batch) * SA, *next_h = xh + std::size_t(z.batch) * XD + X;
    float *xrh = q.xrh + at * XD, *gates = q.gates + at * 2 * D, *c = q.proposed + at * D;
    float *values = q.values + at * X, *mean = q.mean + at * S, *std = q.std + at * S;
    const float *part = q.part + at * X, *noise = q.noise + at * S, *action = q.action + at * A;
    for (int i = 0; i < count; ++i) {
      if (t == 0) {
        std::fill_n(sa + std::size_t(i) * SA, S, 0.f);
        std::fill_n(xh + std::size_t(i) * XD + X, D, 0.f);
      }
      std::copy_n(action + std::size_t(i) * A, A, sa + std::size_t(i) * SA + S);
    }
    Ahead ahead;  // this block's rows of the next step
    if (t + 1 < z.steps) {
      const std::size_t step = z.batch;
      ahead.add(xh + step * XD, std::size_t(count) * XD);
      for (const auto& [array, size] : {std::pair<const float*, int>{gates, 2 * D}, {xrh, XD},
                                        {c, D}, {part, X}, {values, X}, {noise, S}, {mean, S},
                                        {std, S}, {action, A}})
        ahead.add(array + step * size, std::size_t(count) * size);
      ahead.divide(tiles(count, X) + tiles(count, 2 * D) + tiles(count, D));
    }
    activated(z.activation, layers.input, sa, SA, count, xh, XD, &ahead);
    dense<Then::gate>(layers.gates, xh, XD, count, gates, 2 * D, {}, &ahead);
    for (int i = 0; i < count; ++i) {
      const float *x = xh + std::size_t(i) * XD, *h = x + X,
                  *reset = gates + std::size_t(i) * 2 * D;
      float* to = xrh + std::size_t(i) * XD;
      std::copy_n(x, X, to);
      each([](vec r, vec h) { return r * h; }, D, to + X, reset, h);
    }
    dense<Then::tanh>(layers.candidate, xrh, XD, count, c, D, {}, &ahead);
    for (int i = 0; i < count; ++i) {
      const float *h = xh + std::size_t(i) * XD + X, *update = gates + std::size_t(i) * 2 * D + D;
      const float* proposed = c + std::size_t(i) * D;
      float* to = next_h + std::size_t(i) * XD;
      each([](vec c, vec u, vec h) { return c + u * (h - c); }, D, to, proposed, update, h);
    }
    dense<Then::nothing>(layers.hidden, next_h, XD, count, values, X);
    each([](vec a, vec b) { return a + b; }, count * X, values, values, part);
    activate(z.activation, values, count * X);
    dense<Then::nothing>(layers.mean, values, X, count, mean, S);
    dense<Then::nothing>(layers.std, values, X, count, std, S);
    each([&](vec v) { return softplus(v) + z.min_std; }, count * S, std, std);
    for (int i = 0; i < count; ++i)
      each([](vec m, vec s, vec e) { return m + s * e; }, S, next_s + std::size_t(i) * SA,
           mean + i * S, std + i * S, noise + i * S);
  }
}

// The same weights, transposed: they lead back from a product's output to its input.
struct BackwardLayers {
  Layer out, hidden, candidate, gates, input;

  BackwardLayers(const FilterSizes& z, const FilterWeights& w, int e, const float* zeros)
      : out(w.out + std::size_t(e) * z.hidden * 2 * z.stoch, 1, 2 * z.stoch, zeros, 2 * z.stoch,
            z.hidden),
        hidden(w.hidden + std::size_t(e) * z.deter * z.hidden, 1, z.hidden, zeros, z.hidden,
               z.deter),
        candidate(w.candidate + std::size_t(e) * (z.hidden + z.deter) * z.deter, 1, z.deter, zeros,
                  z.deter, z.hidden + z.deter),
        gates(w.gates + std::size_t(e) * (z.hidden + z.deter) * 2 * z.deter, 1, 2 * z.deter, zeros,
              2 * z.deter, z.hidden + z.deter),
        input(w.input + std::size_t(e) * (z.stoch + z.action) * z.hidden, 1, z.hidden, zeros,
              z.hidden, z.stoch) {}
};

void gradient_rows(const FilterSizes& z, const BackwardLayers& layers, const FilterArrays& q,
                   const FilterGradients& g, int e, int first, int count,
                   std::vector<float>& memory) {
  const int D = z.deter, S = z.stoch, X = z.hidden, XD = X + D;
  memory.assign(std::size_t(count) * (2 * D + 2 * S + 2 * XD), 0.f);
  float *to_h = memory.data(), *from_hidden = to_h + std::size_t(count) * D;
  float *to_s = from_hidden + std::size_t(count) * D, *by_candidate = to_s + std::size_t(count) * S;
  float* by_gates = by_candidate + std::size_t(count) * XD;
  float* slope_std = by_gates + std::size_t(count) * XD;
  for (int t = z.steps - 1; t >= 0; --t) {
    const std::size_t at = (std::size_t(e) * z.steps + t) * z.batch + first;
    const std::size_t before = (std::size_t(e) * (z.steps + 1) + t) * z.batch + first;
    const float *xh = q.xh + before * XD, *gates = q.gates + at * 2 * D, *c = q.proposed + at * D;
    const float *values = q.values + at * X, *std = q.std + at * S, *noise = q.noise + at * S;
    float *at_input = g.at_input + at * X, *at_gates = g.at_gates + at * 2 * D;
    float *at_candidate = g.at_candidate + at * D, *at_hidden = g.at_hidden + at * X;
    float* at_out = g.at_out + at * 2 * S;
    each([&](vec v) { return 1.f - exponential<-1>(v - z.min_std); },  // softplus'
         count * S, slope_std, std);
    for (int i = 0; i < count; ++i) {
      const std::size_t row = std::size_t(i) * S, all = at * S + row;
      each([](vec s, vec g_s, vec g_m) { return s + g_s + g_m; }, S, at_out + 2 * row,
           to_s + row, g.stoch + all, g.mean + all);
      each([](vec s, vec g_s, vec e, vec g_v,
              vec slope) { return ((s + g_s) * e + g_v) * slope; },
           S, at_out + 2 * row + S, to_s + row, g.stoch + all, noise + row, g.std + all,
           slope_std + row);
    }
    Ahead ahead;  // this block's rows of the step before
    if (t > 0) {
      const std::size_t step = z.batch;
      ahead.add(xh - step * XD, std::size_t(count) * XD);
      for (const auto& [array, size] :
           {std::pair<const float*, int>{gates, 2 * D}, {at_gates, 2 * D}, {c, D},
            {at_candidate, D}, {values, X}, {at_hidden, X}, {at_input, X}, {at_out, 2 * S},
            {g.deter + at * D, D}, {g.stoch + at * S, S}, {g.mean + at * S, S},
            {g.std + at * S, S}, {std, S}, {noise, S}})
        ahead.add(array - step * size, std::size_t(count) * size);
      ahead.divide(tiles(count, X) + tiles(count, D) + 2 * tiles(count, XD));
    }
    dense<Then::nothing>(layers.out, at_out, 2 * S, count, at_hidden, X, {}, &ahead);
    times_slope(z.activation, count * X, at_hidden, at_hidden, values);
    dense<Then::nothing>(layers.hidden, at_hidden, X, count, from_hidden, D, {}, &ahead);
    for (int i = 0; i < count; ++i) {
      const float *h = xh + std::size_t(i) * XD + X, *u = gates + std::size_t(i) * 2 * D + D;
      const std::size_t row = std::size_t(i) * D;
      each([](vec carried, vec given, vec hidden) { return carried + given + hidden; }, D,
           to_h + row, to_h + row, g.deter + at * D + row, from_hidden + row);
      each([](vec to, vec c, vec u) { return to * (1.f - c * c) * (1.f - u); }, D,
           at_candidate + row, to_h + row, c + row, u);
      each([](vec to, vec h, vec c, vec u) { return to * (h - c) * u * (1.f - u); }, D,
           at_gates + 2 * row + D, to_h + row, h, c + row, u);
    }
    dense<Then::nothing>(layers.candidate, at_candidate, D, count, by_candidate, XD, {}, &ahead);
    for (int i = 0; i < count; ++i) {
      const float *h = xh + std::size_t(i) * XD + X, *r = gates + std::size_t(i) * 2 * D;
      const float *u = r + D, *to_rh = by_candidate + std::size_t(i) * XD + X;
      const std::size_t row = std::size_t(i) * D;
      each([](vec to, vec h, vec r) { return to * h * r * (1.f - r); }, D, at_gates + 2 * row,
           to_rh, h, r);
      each([](vec carried, vec u, vec to, vec r) { return carried * u + to * r; }, D,
           to_h + row, to_h + row, u, to_rh, r);
    }
    dense<Then::nothing>(layers.gates, at_gates, 2 * D, count, by_gates, XD, {}, &ahead);
    for (int i = 0; i < count; ++i) {
      const float *one = by_candidate + std::size_t(i) * XD, *two = by_gates + std::size_t(i) * XD;
      const float* x = xh + std::size_t(i) * XD;
      each([](vec a, vec b) { return a + b; }, X, at_input + std::size_t(i) * X, one, two);
      float* at_row = at_input + std::size_t(i) * X;
      times_slope(z.activation, X, at_row, at_row, x);
      float* carried = to_h + std::size_t(i) * D;
      each([](vec a, vec b) { return a + b; }, D, carried, carried, two + X);
    }
    dense<Then::nothing>(layers.input, at_input, X, count, to_s, S);
  }
}

template <typename Layers>
std::vector<Layers> all_members(const FilterSizes& z, const FilterWeights& weights) {
  const std::vector<float> zeros(2 * (z.deter + z.hidden + z.stoch), 0.f);
  std::vector<Layers> found;
  for (int e = 0; e < z.members; ++e) found.emplace_back(z, weights, e, zeros.data());
  return found;
}

void filter(const FilterSizes& z, const FilterWeights& weights, const FilterArrays& arrays,
            int threads) {
  const auto layers = all_members<ForwardLayers>(z, weights);
  by_blocks(z.members, z.batch, SEQUENCES, threads, [&](int e, int first, int count, std::vector<float>&) {
    filter_rows(z, layers[e], arrays, e, first, count);
  });
}

void filter_gradient(const FilterSizes& z, const FilterWeights& weights, const FilterArrays& arrays,
                     const FilterGradients& gradients, int threads) {
  const auto layers = all_members<BackwardLayers>(z, weights);
  by_blocks(z.members, z.batch, SEQUENCES, threads, [&](int e, int first, int count, std::vector<float>& memory) {
    gradient_rows(z, layers[e], arrays, gradients, e, first, count, memory);
  });
}

}  // namespace
