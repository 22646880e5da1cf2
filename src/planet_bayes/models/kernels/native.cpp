// Imagination on CPUs: P members × N candidates rolled through the horizon (Algorithm 3, lines 6-10).
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
// Three things make it fast. Weights are packed once, in panels of columns that a tile reads in
// order. A tile of the product stays in registers and goes through its activation before it is
// stored. And the parts of a row lie side by side, so that the input of every product is a slice:
//
//     [ r·h | x | h | s | a ]
//
// A block of rows goes through the whole horizon before the next one begins: it stays in cache.
//
// Every output is a sum over k in ascending order, whatever the tile, the block or the thread that
// computes it. So results depend on the instruction set and on nothing else.
//
// The interface is plain C, at the end of the file. The vectors are the compiler's own (GCC, Clang);
// LANES floats each, by the instruction set that the file is compiled for.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace {

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

constexpr int ROWS = 6;           // of a tile
constexpr int WIDTH = 2 * LANES;  // columns of a tile: 12 accumulators of LANES
constexpr int BLOCK = 96;         // most rows that go through the horizon together

inline vec load(const float* from) {
  vec value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, vec value) { std::memcpy(to, &value, sizeof value); }
inline vec all(float value) { return value - vec{}; }

// --- Functions of a vector. A NaN stays a NaN: comparisons with it are false.

inline vec exponential(vec x) {
  const vec too_large = all(88.72283f), too_small = all(-87.33654f);
  const vec clamped = x > too_large ? too_large : (x < too_small ? too_small : x);
  const vec magic = all(12582912.f);  // 1.5 · 2^23: adding it rounds to the nearest integer
  const vec n = (clamped * 1.44269504f + magic) - magic;
  vec r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;  // log 2 in two parts
  vec p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  // 2^n in two factors, since 2^128 is not a float. The integers of a NaN do not matter.
  const ints whole = __builtin_convertvector(clamped == clamped ? n : vec{}, ints);
  const ints half = whole >> 1;
  const ints first = (half + 127) << 23, second = (whole - half + 127) << 23;
  vec scale, rest;
  std::memcpy(&scale, &first, sizeof scale);
  std::memcpy(&rest, &second, sizeof rest);
  const vec value = p * scale * rest;
  return x > too_large ? all(std::numeric_limits<float>::infinity()) : value;
}

inline vec sigmoid(vec x) { return 1.f / (1.f + exponential(-x)); }

// log(1 + t) for t in [0, 1].
inline vec log_one_plus(vec t) {
  const vec u = 1.f + t;
  const auto large = u > all(1.41421356f);
  const vec y = large ? u * 0.5f - 1.f : u - 1.f;
  const vec z = y * y;
  vec p = all(7.0376836292e-2f);
  p = p * y - 1.1514610310e-1f;
  p = p * y + 1.1676998740e-1f;
  p = p * y - 1.2420140846e-1f;
  p = p * y + 1.4249322787e-1f;
  p = p * y - 1.6668057665e-1f;
  p = p * y + 2.0000714765e-1f;
  p = p * y - 2.4999993993e-1f;
  p = p * y + 3.3333331174e-1f;
  const vec log_u = y + (p * y * z - 0.5f * z) + (large ? all(0.69314718f) : vec{});
  return log_u + (t - (u - 1.f)) / u;  // what rounding 1 + t lost
}

inline vec softplus(vec x) {
  const vec positive = x < vec{} ? vec{} : x, size = x < vec{} ? -x : x;
  return positive + log_one_plus(exponential(-size));
}

// --- A product and what follows it.

enum class Then { relu, elu, silu, nothing, times_h, gate, new_h };

// Where the GRU's parts are, for the products that need them.
struct Cell {
  const float* h;
  const float* update;
  int row;         // distance between rows of h
  int update_row;  // and of the update gate
};

template <Then then>
inline vec finish(vec z, const Cell& cell, int row, int column) {
  if constexpr (then == Then::relu) return z < vec{} ? vec{} : z;
  if constexpr (then == Then::elu) return z > vec{} ? z : exponential(z) - 1.f;
  if constexpr (then == Then::silu) return z * sigmoid(z);
  if constexpr (then == Then::gate) return sigmoid(z);
  if constexpr (then == Then::times_h)
    return sigmoid(z) * load(cell.h + std::ptrdiff_t(row) * cell.row + column);
  if constexpr (then == Then::new_h) {
    const vec c = 2.f * sigmoid(2.f * z) - 1.f;  // tanh
    const vec h = load(cell.h + std::ptrdiff_t(row) * cell.row + column);
    const vec u = load(cell.update + std::ptrdiff_t(row) * cell.update_row + column);
    return c + u * (h - c);
  }
  return z;
}

// A dense layer in panels of WIDTH columns, the last of them filled up with zeros. If its columns
// fit into one vector, the last panel is LANES wide.
struct Layer {
  int inputs = 0, outputs = 0;
  std::vector<float> weight, bias;

  static int padded(int outputs) {
    const int rest = outputs % WIDTH;
    return outputs - rest + (rest == 0 ? 0 : rest <= LANES ? LANES : WIDTH);
  }

  // The weight of input i and output j is at from[i * row + j * column].
  Layer(const float* from, int row, int column, const float* offset, int inputs, int outputs)
      : inputs(inputs), outputs(outputs) {
    const int columns = padded(outputs);
    weight.resize(std::size_t(inputs) * columns);
    bias.assign(columns, 0.f);
    std::copy(offset, offset + outputs, bias.begin());
    float* to = weight.data();
    for (int start = 0, width = 0; start < columns; start += width) {
      width = std::min(WIDTH, columns - start);
      for (int i = 0; i < inputs; ++i)
        for (int j = start; j < start + width; ++j)
          *to++ = j < outputs ? from[std::ptrdiff_t(i) * row + std::ptrdiff_t(j) * column] : 0.f;
    }
  }
};

template <Then then, int VECTORS>
inline void tile(const float* in, int in_row, const Layer& layer, const float* panel, int column,
                 float* out, int out_row, const Cell& cell, int row) {
  vec sum[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) sum[r][v] = load(&layer.bias[column + v * LANES]);
  for (int k = 0; k < layer.inputs; ++k) {
    vec w[VECTORS];
    for (int v = 0; v < VECTORS; ++v) w[v] = load(panel + (k * VECTORS + v) * LANES);
    for (int r = 0; r < ROWS; ++r) {
      const vec value = all(in[std::ptrdiff_t(r) * in_row + k]);
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += value * w[v];
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int v = 0; v < VECTORS; ++v) {
      const int at = column + v * LANES, left = layer.outputs - at;
      if (left <= 0) break;
      const vec value = finish<then>(sum[r][v], cell, row + r, at);
      float* to = out + std::ptrdiff_t(r) * out_row + at;
      if (left >= LANES) {
        store(to, value);
      } else {
        std::memcpy(to, &value, left * sizeof(float));
      }
    }
  }
}

// out = then(in · weight + bias) for a multiple of ROWS rows.
template <Then then>
void dense(const Layer& layer, const float* in, int in_row, int rows, float* out, int out_row,
           const Cell& cell = {}) {
  const int columns = int(layer.bias.size());
  for (int column = 0; column < columns; column += WIDTH) {
    const float* panel = &layer.weight[std::size_t(column) * layer.inputs];
    for (int row = 0; row < rows; row += ROWS) {
      const float* from = in + std::ptrdiff_t(row) * in_row;
      float* to = out + std::ptrdiff_t(row) * out_row;
      if (columns - column >= WIDTH) {
        tile<then, 2>(from, in_row, layer, panel, column, to, out_row, cell, row);
      } else {
        tile<then, 1>(from, in_row, layer, panel, column, to, out_row, cell, row);
      }
    }
  }
}

void activated(int activation, const Layer& layer, const float* in, int in_row, int rows,
               float* out, int out_row) {
  switch (activation) {
    case 0: return dense<Then::relu>(layer, in, in_row, rows, out, out_row);
    case 1: return dense<Then::elu>(layer, in, in_row, rows, out, out_row);
    default: return dense<Then::silu>(layer, in, in_row, rows, out, out_row);
  }
}

// --- The model.

struct Member {
  Layer input, reset, update, candidate, hidden, mean, std;
};

struct Sizes {  // as in native.py
  int32_t members, action, deter, stoch, hidden, head_layers, head_units, activation;
  float min_std, reward_scale;
};

struct Model {
  Sizes sizes;
  std::vector<Member> members;
  std::vector<Layer> head;     // all but the last layer
  std::vector<float> last;     // its weights
  float last_bias;
  std::vector<float> unsound;  // per member: 0, or NaN if a weight is not finite
};

// Returns 0, or NaN if a number is not finite.
float not_finite(const float* values, std::size_t count) {
  float sum = 0.f;
  for (std::size_t i = 0; i < count; ++i) sum += values[i] * 0.f;
  return sum;
}

struct Work {
  int batch, candidates, horizon, noise_columns, threads;
  const float *deter, *stoch, *actions, *noise;
  float* rewards;
};

// Rolls the candidates first … first + count of problem `problem` through the horizon.
void roll(const Model& model, const Work& work, int member, int problem, int first, int count,
          std::vector<float>& memory) {
  const Sizes& z = model.sizes;
  const Member& m = model.members[member];
  const int D = z.deter, S = z.stoch, X = z.hidden, A = z.action;
  const int rows = (count + ROWS - 1) / ROWS * ROWS;
  const int start = member * work.batch + problem;
  // Distances between rows: not a power of two, or all rows compete for the same lines of a cache.
  const int row = (D + X + D + S + A + 15) / 16 * 16 + 16;
  const int wide = (std::max({X, D, S, int(z.head_units)}) + 15) / 16 * 16 + 16;
  memory.assign(std::size_t(rows) * (row + 4 * std::size_t(wide)) + rows + WIDTH, 0.f);
  float *rh = memory.data(), *x = rh + D, *h = x + X, *s = h + D, *a = s + S;
  float* u = rh + std::size_t(rows) * row;
  float *one = u + std::size_t(rows) * wide, *two = one + std::size_t(rows) * wide;
  float *raw = two + std::size_t(rows) * wide, *broken = raw + std::size_t(rows) * wide;
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
      std::copy(action, action + A, a + std::size_t(i) * row);
      broken[i] += not_finite(action, A);
    }
    activated(z.activation, m.input, s, row, rows, x, row);
    dense<Then::times_h>(m.reset, x, row, rows, rh, row, cell);
    dense<Then::gate>(m.update, x, row, rows, u, wide, cell);
    dense<Then::new_h>(m.candidate, rh, row, rows, h, row, cell);
    activated(z.activation, m.hidden, h, row, rows, one, wide);
    dense<Then::nothing>(m.mean, one, wide, rows, s, row);
    if (work.noise != nullptr) {
      dense<Then::nothing>(m.std, one, wide, rows, raw, wide);
      const std::size_t place =
          (std::size_t(t) * z.members * work.batch + start) * work.noise_columns;
      for (int i = 0; i < count; ++i) {
        const std::size_t column = work.noise_columns == 1 ? 0 : first + i;
        const float* noise = work.noise + (place + column) * S;
        broken[i] += not_finite(noise, S);
        float *std = raw + std::size_t(i) * wide, *to = s + std::size_t(i) * row;
        for (int j = 0; j < S; j += LANES) store(std + j, softplus(load(std + j)) + z.min_std);
        for (int j = 0; j < S; ++j) to[j] += std[j] * noise[j];
      }
    }
    const float* in = h;
    int in_row = row;
    float *out = one, *other = two;
    for (const Layer& layer : model.head) {
      activated(z.activation, layer, in, in_row, rows, out, wide);
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
  }
}

// Blocks of nearly equal sizes: at most BLOCK rows each, and several for each thread.
int block_rows(int candidates, int others, int threads) {
  int blocks = (candidates + BLOCK - 1) / BLOCK;
  if (threads > 1) blocks = std::max(blocks, (4 * threads + others - 1) / others);
  const int rows = (candidates + blocks - 1) / blocks;
  return (rows + ROWS - 1) / ROWS * ROWS;
}

void imagine(const Model& model, const Work& work) {
  const int others = model.sizes.members * work.batch;
  const int size = block_rows(work.candidates, others, work.threads);
  const int blocks = (work.candidates + size - 1) / size;
  const int jobs = others * blocks;
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  const auto run = [&] {
    try {
      std::vector<float> memory;
      for (int job = next++; job < jobs; job = next++) {
        // All blocks of a member in turn: its weights are in cache.
        const int member = job / (work.batch * blocks), rest = job % (work.batch * blocks);
        const int problem = rest / blocks, first = rest % blocks * size;
        const int count = std::min(size, work.candidates - first);
        roll(model, work, member, problem, first, count, memory);
      }
    } catch (...) {
      failed = true;
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < std::min(work.threads, jobs); ++i) helpers.emplace_back(run);
  } catch (...) {  // no more threads: those that there are do the work
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failed) throw std::bad_alloc();
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
        Layer(w[4] + S, 2 * S, 1, b[4] + S, X, S),
    });
    model.unsound.push_back(unsound);
  }
  return model;
}

}  // namespace

// --- The interface. All arrays are contiguous float32.

extern "C" {

// Returns the model's packed weights, or null without memory. `layers` are the weights [P, in, out]
// and biases [P, out] of input, gates, candidate, prior_hidden and prior_out, in turn; `head` the
// weights [out, in] and biases [out] of the reward head's head_layers + 1 layers.
void* planet_bayes_pack(const Sizes* sizes, const float* const* layers, const float* const* head) {
  try {
    return new Model(packed(*sizes, layers, head));
  } catch (...) {
    return nullptr;
  }
}

void planet_bayes_free(void* model) { delete static_cast<Model*>(model); }

// Writes rewards [B, N, P, H] for actions [B, N, H, A] from deter [P, B, D] and stoch [P, B, S].
// `noise` is [H, P, B, noise_columns, S], where noise_columns is N or 1, or null for the prior's
// mean. Returns 0, or 1 without memory. An input or weight that is not finite gives NaN.
int planet_bayes_imagine(const void* model, int batch, int candidates, int horizon,
                         const float* deter, const float* stoch, const float* actions,
                         const float* noise, int noise_columns, int threads, float* rewards) {
  try {
    imagine(*static_cast<const Model*>(model), Work{batch, candidates, horizon, noise_columns,
                                                    threads, deter, stoch, actions, noise,
                                                    rewards});
    return 0;
  } catch (...) {
    return 1;
  }
}

int planet_bayes_lanes() { return LANES; }

}  // extern "C"
