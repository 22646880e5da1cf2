// Dense layers for a few rows: weights packed in panels, tiles in registers, activations applied
// before a tile is stored.
//
// Every output is a sum over k in ascending order, whatever the tile, the block of rows or the
// thread that computes it. So results depend on the instruction set and on nothing else.
//
// The vectors are the compiler's own (GCC, Clang): LANES floats each, by the instruction set that
// the file is compiled for.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

constexpr int WIDTH = 2 * LANES;  // columns of a tile. It has 6 rows (12 accumulators), 5 or 1
// Columns of the last tile, if three vectors are left and there are registers for them: a tile of one
// vector has too few accumulators to keep the multipliers busy.
constexpr int WIDEST = LANES == 16 ? 3 * LANES : WIDTH;

inline vec load(const float* from) {
  vec value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, vec value) { std::memcpy(to, &value, sizeof value); }

// The first `count` of a vector, at least one. The rest of memory is neither read nor written. A
// copy of `count` bytes would be a call.
#if LANES == 16 && defined(__AVX512F__)
inline __mmask16 first_of(int count) { return __mmask16((1u << count) - 1); }
inline vec load(const float* from, int count) {  // the others are zeros
  if (count >= LANES) return load(from);
  return vec(_mm512_maskz_loadu_ps(first_of(count), from));
}
inline void store(float* to, vec value, int count) {
  if (count >= LANES) return store(to, value);
  _mm512_mask_storeu_ps(to, first_of(count), __m512(value));
}
#elif LANES == 8 && defined(__AVX2__)
inline __m256i first_of(int count) {
  alignas(32) static const int32_t flags[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(flags + LANES - count));
}
inline vec load(const float* from, int count) {
  if (count >= LANES) return load(from);
  return vec(_mm256_maskload_ps(from, first_of(count)));
}
inline void store(float* to, vec value, int count) {
  if (count >= LANES) return store(to, value);
  _mm256_maskstore_ps(to, first_of(count), __m256(value));
}
#else
inline vec load(const float* from, int count) {
  if (count >= LANES) return load(from);
  vec value{};
  std::memcpy(&value, from, count * sizeof(float));
  return value;
}
inline void store(float* to, vec value, int count) {
  std::memcpy(to, &value, std::min(count, LANES) * sizeof(float));
}
#endif
inline vec all(float value) { return value - vec{}; }

// --- Functions of a vector. A NaN stays a NaN: comparisons with it are false.

// exp(SCALE · x), where 2^-126 < exp(SCALE · x) < 2^127 and the nearest of these numbers elsewhere.
// SCALE is in the constants, so it costs nothing. The polynomial's error is 1e-7 (minimax).
template <int SCALE>
inline vec exponential(vec x) {
  constexpr float s = SCALE, log_2 = 0.693147181f;
  const vec most = all(87.f / (s < 0 ? -s : s)), least = -most;
  x = x > most ? most : x;
  x = x < least ? least : x;
  // Adding 1.5 · 2^23 rounds to the nearest integer n, and leaves n + 127 in the lowest bits.
  const vec magic = all(12582912.f + 127.f);
  const vec sum = x * (s / log_2) + magic, n = sum - magic;
  constexpr float high = 0.693359375f / s, low = -2.12194440e-4f / s;  // log 2 / s in two parts
  const vec r = (x - n * high) - n * low;
  vec p = r * (8.3125014e-3f * s * s * s * s * s) + 4.1890332e-2f * s * s * s * s;
  p = p * r + 1.6667115e-1f * s * s * s;
  p = p * r + 4.9999230e-1f * s * s;
  p = p * r + s;
  p = p * r + 1.f;
  ints bits;
  std::memcpy(&bits, &sum, sizeof bits);
  bits <<= 23;
  vec power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

inline vec sigmoid(vec x) { return 1.f / (1.f + exponential<-1>(x)); }

inline vec hyperbolic_tangent(vec x) { return 2.f / (1.f + exponential<-2>(x)) - 1.f; }

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
  return positive + log_one_plus(exponential<-1>(size));
}

// to[i] = function(from[i]…), a vector at a time; arrays do not overlap, or are the same.
template <typename Function, typename... Pointers>
inline void each(Function function, int count, float* to, Pointers... from) {
  int i = 0;
  for (; i + LANES <= count; i += LANES) store(to + i, function(load(from + i)...));
  if (i == count) return;
  store(to + i, function(load(from + i, count - i)...), count - i);
}

// to = gradient · the slope of relu or elu where its value is `values`.
inline void times_slope(int activation, int count, float* to, const float* gradient,
                        const float* values) {
  if (activation == 0) {
    each([](vec g, vec v) { return v <= vec{} ? vec{} : g; }, count, to, gradient, values);
  } else {
    each([](vec g, vec v) { return v > vec{} ? g : g * (v + 1.f); }, count, to, gradient, values);
  }
}

// --- A product and what follows it.

enum class Then { relu, elu, silu, nothing, gate, tanh, times_h, new_h };

// Where the GRU's parts are, for the products that need them.
struct Cell {
  const float* h;
  const float* update;
  int row;         // distance between rows of h
  int update_row;  // and of the update gate
};

template <Then then>
inline vec finish(vec z, const Cell& cell, int row, int column, int count) {
  if constexpr (then == Then::relu) return z < vec{} ? vec{} : z;
  if constexpr (then == Then::elu) return z > vec{} ? z : exponential<1>(z) - 1.f;
  if constexpr (then == Then::silu) return z * sigmoid(z);
  if constexpr (then == Then::gate) return sigmoid(z);
  if constexpr (then == Then::tanh) return hyperbolic_tangent(z);
  if constexpr (then == Then::times_h)
    return sigmoid(z) * load(cell.h + std::ptrdiff_t(row) * cell.row + column, count);
  if constexpr (then == Then::new_h) {
    const vec c = hyperbolic_tangent(z);
    const vec h = load(cell.h + std::ptrdiff_t(row) * cell.row + column, count);
    const vec u = load(cell.update + std::ptrdiff_t(row) * cell.update_row + column, count);
    return c + u * (h - c);
  }
  return z;
}

// Columns of the next panel, where `left` are left: a multiple of LANES.
constexpr int panel_width(int left) {
  return left == WIDEST ? WIDEST : left < WIDTH ? left : WIDTH;
}

// A dense layer in panels of WIDTH columns, the last of them filled up with zeros to whole vectors:
// one, two or WIDEST.
struct Layer {
  int inputs = 0, outputs = 0;
  std::vector<float> weight, bias;

  static int padded(int outputs) { return (outputs + LANES - 1) / LANES * LANES; }

  // The weight of input i and output j is at from[i * row + j * column].
  Layer(const float* from, int row, int column, const float* offset, int inputs, int outputs)
      : inputs(inputs), outputs(outputs) {
    const int columns = padded(outputs);
    weight.resize(std::size_t(inputs) * columns);  // zeros
    bias.assign(columns, 0.f);
    std::copy(offset, offset + outputs, bias.begin());
    float* to = weight.data();
    for (int start = 0, width = 0; start < columns; start += width) {
      width = panel_width(columns - start);
      const int used = std::min(width, outputs - start);
      for (int i = 0; i < inputs; ++i, to += width) {
        const float* place = from + std::ptrdiff_t(i) * row + std::ptrdiff_t(start) * column;
        if (column == 1) {
          std::copy_n(place, used, to);
        } else {
          for (int j = 0; j < used; ++j) to[j] = place[std::ptrdiff_t(j) * column];
        }
      }
    }
  }
};

// One tile: the first `rows` of ROWS rows. The others repeat the last, and are not stored.
template <Then then, int VECTORS, int ROWS>
inline void tile(const float* in, int in_row, int rows, const Layer& layer, const float* panel,
                 int column, float* out, int out_row, const Cell& cell, int row) {
  const float* from[ROWS];
  for (int r = 0; r < ROWS; ++r) from[r] = in + std::ptrdiff_t(std::min(r, rows - 1)) * in_row;
  vec sum[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) sum[r][v] = load(&layer.bias[column + v * LANES]);
  for (int k = 0; k < layer.inputs; ++k) {
    vec w[VECTORS];
    for (int v = 0; v < VECTORS; ++v) w[v] = load(panel + (k * VECTORS + v) * LANES);
    for (int r = 0; r < ROWS; ++r) {
      const vec value = all(from[r][k]);
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += value * w[v];
    }
  }
  // Stored first: kept in registers, few of them would be left for what follows.
  vec kept[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) kept[r][v] = sum[r][v];
  if (rows == ROWS && column + VECTORS * LANES <= layer.outputs) {
    // A whole tile. The compiler unrolls it, so that several activations are under way at once.
    for (int r = 0; r < ROWS; ++r)
      for (int v = 0; v < VECTORS; ++v)
        store(out + std::ptrdiff_t(r) * out_row + column + v * LANES,
              finish<then>(kept[r][v], cell, row + r, column + v * LANES, LANES));
    return;
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < VECTORS; ++v) {
      const int at = column + v * LANES, left = std::min(LANES, layer.outputs - at);
      if (left <= 0) break;
      store(out + std::ptrdiff_t(r) * out_row + at,
            finish<then>(kept[r][v], cell, row + r, at, left), left);
    }
  }
}

// Memory that is needed next. It is asked for a little with every tile, and arrives meanwhile.
struct Ahead {
  struct Range {
    const char *at, *end;
  };
  Range ranges[16];
  int count = 0, current = 0, lines = 0;

  void add(const float* from, std::size_t numbers) {
    const char* begin = reinterpret_cast<const char*>(from);
    ranges[count++] = {begin, begin + numbers * sizeof(float)};
  }
  // Divides what was added among about so many tiles.
  void divide(int tiles) {
    std::ptrdiff_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += ranges[i].end - ranges[i].at;
    lines = int(bytes / 64 / std::max(1, tiles)) + 1;
  }
  void ask() {
    for (int left = lines; left > 0 && current < count; ++current) {
      Range& range = ranges[current];
      for (; left > 0 && range.at < range.end; --left, range.at += 64) __builtin_prefetch(range.at);
      if (range.at < range.end) return;
    }
  }
};

// Tiles of a product.
inline int tiles(int rows, int outputs) {
  return ((rows + 5) / 6) * ((outputs + WIDTH - 1) / WIDTH);
}

template <Then then, int ROWS>
void dense_by(const Layer& layer, const float* in, int in_row, int rows, float* out, int out_row,
              const Cell& cell, Ahead* ahead) {
  const int columns = int(layer.bias.size());
  for (int column = 0, width = 0; column < columns; column += width) {
    width = panel_width(columns - column);
    const float* panel = &layer.weight[std::size_t(column) * layer.inputs];
    for (int row = 0; row < rows; row += ROWS) {
      const float* from = in + std::ptrdiff_t(row) * in_row;
      float* to = out + std::ptrdiff_t(row) * out_row;
      const int left = std::min(ROWS, rows - row);
      if (ahead != nullptr) ahead->ask();
      if (width > WIDTH) {
        tile<then, WIDEST / LANES, ROWS>(from, in_row, left, layer, panel, column, to, out_row,
                                         cell, row);
      } else if (width == WIDTH) {
        tile<then, 2, ROWS>(from, in_row, left, layer, panel, column, to, out_row, cell, row);
      } else {
        tile<then, 1, ROWS>(from, in_row, left, layer, panel, column, to, out_row, cell, row);
      }
    }
  }
}

// out = then(in · weight + bias), in tiles of the height that wastes least.
template <Then then>
void dense(const Layer& layer, const float* in, int in_row, int rows, float* out, int out_row,
           const Cell& cell = {}, Ahead* ahead = nullptr) {
  if (rows == 1) {
    dense_by<then, 1>(layer, in, in_row, rows, out, out_row, cell, ahead);
  } else if ((rows + 4) / 5 * 5 < (rows + 5) / 6 * 6) {
    dense_by<then, 5>(layer, in, in_row, rows, out, out_row, cell, ahead);
  } else {
    dense_by<then, 6>(layer, in, in_row, rows, out, out_row, cell, ahead);
  }
}

void activated(int activation, const Layer& layer, const float* in, int in_row, int rows,
               float* out, int out_row, Ahead* ahead = nullptr) {
  switch (activation) {
    case 0:
      return dense<Then::relu>(layer, in, in_row, rows, out, out_row, {}, ahead);
    case 1:
      return dense<Then::elu>(layer, in, in_row, rows, out, out_row, {}, ahead);
    default:
      return dense<Then::silu>(layer, in, in_row, rows, out, out_row, {}, ahead);
  }
}

// Returns 0, or NaN if a number is not finite.
inline float not_finite(const float* values, std::size_t count) {
  vec sums[4] = {};  // more than one: additions to the same sum wait for each other
  std::size_t i = 0;
  for (; i + 4 * LANES <= count; i += 4 * LANES)
    for (int v = 0; v < 4; ++v) sums[v] += load(values + i + v * LANES) * 0.f;
  for (; i < count; i += LANES) sums[0] += load(values + i, int(count - i)) * 0.f;
  float sum = 0.f;
  for (int j = 0; j < LANES; ++j) sum += sums[0][j] + sums[1][j] + sums[2][j] + sums[3][j];
  return sum;
}

// --- Threads.

// Calls work(job, memory) for every job, with threads that share the jobs. `memory` is a thread's
// own.
template <typename Function>
void in_parallel(int jobs, int threads, Function work) {
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  const auto run = [&] {
    try {
      std::vector<float> memory;
      for (int job = next++; job < jobs; job = next++) work(job, memory);
    } catch (...) {
      failed = true;
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < std::min(threads, jobs); ++i) helpers.emplace_back(run);
  } catch (...) {  // no more threads: those that there are do the work
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failed) throw std::bad_alloc();
}

// Returns the rows of a block, at most `most`, for `others` members or problems of `rows` rows each.
// With several threads there are at least four blocks for each of them, so that they end together.
int block_rows(int rows, int most, int others, int threads) {
  int blocks = (rows + most - 1) / most;
  if (threads > 1) blocks = std::max(blocks, (4 * threads + others - 1) / others);
  const int size = (rows + blocks - 1) / blocks;
  return std::max(1, size);
}

// Calls work(group, first row, rows, memory) for every block of at most `most` rows of every group.
template <typename Function>
void by_blocks(int groups, int rows, int most, int threads, Function work) {
  if (groups == 0 || rows == 0) return;
  const int size = block_rows(rows, most, groups, threads);
  const int blocks = (rows + size - 1) / size;
  in_parallel(groups * blocks, threads, [&](int job, std::vector<float>& memory) {
    const int first = job % blocks * size;
    work(job / blocks, first, std::min(size, rows - first), memory);
  });
}

}  // namespace
